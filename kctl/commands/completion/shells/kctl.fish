# fish completion for kctl: kctl itself names what fits.  `kctl completion fish | source`
function __kctl_complete
    set -l word (commandline -ct)
    set -l lines (command kctl __complete fish (commandline -opc)[2..-1] "$word" 2> /dev/null)
    set -l front (string match -r -- '^--[^=]*=' "$word")
    set -l path (string replace -r -- '^--[^=]*=' '' "$word")
    switch "$lines[1]"
        case files
            printf '%s\n' "$front"(__fish_complete_path "$path")
        case directories
            printf '%s\n' "$front"(__fish_complete_directories "$path" '')
        case '*'
            printf '%s\n' $lines[2..-1]
    end
end
complete -c kctl -f -a '(__kctl_complete)'
