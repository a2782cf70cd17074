# bash completion for kctl: kctl itself names what fits.  `source <(kctl completion bash)`
_kctl() {
    local kind
    COMPREPLY=()
    {
        IFS= read -r kind
        mapfile -t COMPREPLY
    } < <(command kctl __complete bash "$2" "${COMP_LINE:0:COMP_POINT}" 2> /dev/null)
    case $kind in
    files | directories)
        compopt -o filenames
        [[ $kind == files ]] && kind=file || kind=directory
        mapfile -t COMPREPLY < <(compgen -A "$kind" -- "$2")
        ;;
    unfinished) compopt -o nospace ;;
    esac
}
complete -F _kctl kctl
