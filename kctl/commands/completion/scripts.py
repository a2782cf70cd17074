"""Completion scripts, generated from the typer commands.

They complete nouns, verbs, options, the values of options with a fixed choice and paths of files, without starting
Python.  For names of topics, groups and so on they call `kctl __names`, which prints those that commands have listed
before.  Names are data of other people: no shell evaluates them, and those with special characters are not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kctl.commands.completion import PROGRAM_WORD
from kctl.commands.frame.help import summary_of
from kctl.commands.frame.parameters import (
    Parameter,
    choices_of,
    cluster_options,
    completes,
    completes_names,
    flags_of,
    is_argument,
    is_flag,
    metavar_of,
    output_options,
    repeats,
)
from kctl.commands.frame.root import NOUNS

Commands = Mapping[str, Mapping[str, Any]]
"""Commands by noun and verb."""


def _common() -> list[Parameter]:
    return [*cluster_options(), *output_options()]


HEADER = "completion for kctl, made by `kctl completion {}`; ./dev completions renews it."


def script_for(shell: str, commands: Commands) -> str:
    """The whole script for bash, zsh or fish."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return "\n".join([*makers[shell](commands), ""])


def _bash(commands: Commands) -> Iterator[str]:
    leading = [parameter for parameter in _common() if not is_flag(parameter)]
    yield f"# bash {HEADER.format('bash')}"
    yield from (
        "_kctl() {",
        "    local noun='' verb='' words='' flags='' kind='' position piece rest=$COMP_LINE",
        "    local -a given=()",
        "    COMPREPLY=()",
        "    # bash divides words at : and =, and completes what is after the last of them.",
        "    for ((position = 0; position <= COMP_CWORD; position++)); do",
        "        piece=${COMP_WORDS[position]}",
        '        if [[ $position -eq 0 || $rest == [[:space:]]* ]]; then given+=("$piece"); else given[-1]+=$piece; fi',
        '        rest=${rest#"${rest%%[![:space:]]*}"}',
        '        rest=${rest#"$piece"}',
        "    done",
        "    [[ $piece != [:=] ]] || piece=''",
        "    local cur=${given[-1]} prev=${given[${#given[@]} - 2]}",
        "    if [[ $cur == --*=* ]]; then prev=${cur%%=*} cur=${cur#*=}; fi",
        "    for ((position = 1; position < ${#given[@]} - 1; position++)); do",
        "        case ${given[position]} in",
        f"        {_alternatives(leading)}) ((position++)) ;;",
        "        -*) ;;",
        "        *)",
        "            if [[ -n $noun ]]; then verb=${given[position]} && break; fi",
        "            noun=${given[position]}",
        "            ;;",
        "        esac",
        "    done",
        "    case $noun in",
    )
    yield f"    '') words='{' '.join(commands)}' flags='{_flags(_common())} --version' ;;"
    for noun, verbs in commands.items():
        if noun in verbs:
            yield f"    {noun}) verb={noun} ;;"
        else:
            yield f"    {noun}) [[ -n $verb ]] || words='{' '.join(verbs)}' flags=--help ;;"
    yield from ("    esac", '    case "$noun $verb" in', "    *' ')")
    yield from _bash_values(leading, None)
    for noun, verbs in commands.items():
        for verb, command in verbs.items():
            yield f"    '{noun} {verb}')"
            yield from _bash_command(command)
    yield from (
        "    esac",
        "    case $kind in",
        '    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;',
        '    directory) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;',
        "    none) ;;",
        "    names-*)",
        "        compopt +o filenames 2> /dev/null",
        "        local line=${COMP_LINE:0:COMP_POINT}",
        f'        words=$(command kctl {PROGRAM_WORD} "${{kind#names-}}" "$piece" "$line" 2> /dev/null)',
        '        [[ -z $words ]] || mapfile -t COMPREPLY <<< "$words"',
        "        ;;",
        "    *)",
        "        [[ $cur == -* ]] && words=$flags",
        '        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
        "        ;;",
        "    esac",
        '    [[ $kind == names-* ]] || COMPREPLY=("${COMPREPLY[@]#"${cur%"$piece"}"}")',
        "}",
        "complete -o filenames -F _kctl kctl",
    )


def _bash_command(command: Any) -> Iterator[str]:
    options = [parameter for parameter in command.params if not is_argument(parameter)]
    argument, second = [*(one for one in command.params if is_argument(one)), None, None][:2]
    yield f"        flags='{_flags(options)}'"
    if argument is not None and choices_of(argument):
        yield f"        words='{' '.join(choices_of(argument))}'"
    yield from _bash_values(options, argument, second)


def _bash_values(
    options: Sequence[Parameter], argument: Parameter | None, second: Parameter | None = None
) -> Iterator[str]:
    """The completions of an option's value, or of an argument."""
    yield "        case $prev in"
    for option in options:
        if choices_of(option):
            yield f"        {_alternatives([option])}) words='{' '.join(choices_of(option))}' flags='' ;;"
        elif _kind(option):
            yield f"        {_alternatives([option])}) kind='{_kind(option)}' ;;"
    free = [one for one in options if not (is_flag(one) or choices_of(one) or _kind(one))]
    if free:
        yield f"        {_alternatives(free)}) kind='none' ;;"
    if argument is not None and _kind(argument):
        yield f"        *) [[ $cur == -* ]] || kind='{_kind(argument)}' ;;"
    elif argument is not None and second is not None and completes_names(second):
        # After the type come names, as in `configs describe topic NAME`.
        pattern = f"*' '@({'|'.join(choices_of(argument))})' '*"
        words = '" ${given[*]:0:${#given[@]} - 1} "'
        yield f"        *) [[ $cur == -* || {words} != {pattern} ]] || kind='{_kind(second)}' ;;"
    yield from ("        esac", "        ;;")


def _kind(parameter: Parameter) -> str:
    """`file`, `directory`, `names-topics` and so on; empty if nothing is completed."""
    names = completes_names(parameter)
    return f"names-{names}" if names else completes(parameter)


def _alternatives(options: Iterable[Parameter]) -> str:
    return " | ".join(flag for option in options for flag in flags_of(option))


def _flags(options: Iterable[Parameter]) -> str:
    return " ".join([*(flag for option in options for flag in flags_of(option)), "--help"])


def _zsh(commands: Commands) -> Iterator[str]:
    yield from ("#compdef kctl", f"# zsh {HEADER.format('zsh')}", "", "_kctl() {")
    yield from _zsh_choice(
        "noun",
        [(noun, str(NOUNS[noun].summary)) for noun in commands],
        [*map(_zsh_option, _common()), "'--version[Print the version.]'"],
    )
    for noun, verbs in commands.items():
        function = f"_kctl_{noun}" if noun not in verbs else f"_kctl_{noun}_{noun}"
        yield f"        {noun}) {function} ;;"
    yield from ("        esac", "        ;;", "    esac", "}")
    for noun, verbs in commands.items():
        if noun not in verbs:
            yield from ("", f"_kctl_{noun}() {{")
            yield from _zsh_choice("verb", [(verb, summary_of(one)) for verb, one in verbs.items()], [])
            yield from (f"        {verb}) _kctl_{noun}_{verb} ;;" for verb in verbs)
            yield from ("        esac", "        ;;", "    esac", "}")
        for verb, command in verbs.items():
            yield from ("", f"_kctl_{noun}_{verb}() {{", "    _arguments -s \\")
            yield from (f"        {_zsh_parameter(parameter)} \\" for parameter in command.params)
            yield from ("        '(- *)--help[Print help.]'", "}")
    yield from (
        "",
        "_kctl_names() {",
        "    local found",
        f'    found=$(command kctl {PROGRAM_WORD} $1 "$PREFIX" "$LBUFFER" 2> /dev/null)',
        '    [[ -z $found ]] || compadd -- "${(@f)found}"',
        "}",
    )
    # A file of fpath is the body of _kctl when it is completed first; `source` only defines functions.
    yield from ("", 'if [[ $funcstack[1] == _kctl ]]; then _kctl "$@"; else compdef _kctl kctl; fi')


def _zsh_choice(what: str, choices: Sequence[tuple[str, str]], options: Sequence[str]) -> Iterator[str]:
    yield from ("    local curcontext=$curcontext state line", "    typeset -A opt_args", f"    local -a {what}s=(")
    yield from (f"        {_quoted(f'{name}:{summary}')}" for name, summary in choices)
    yield from ("    )", "    _arguments -C \\")
    yield from (f"        {option} \\" for option in options)
    yield from (
        "        '(- *)--help[Print help.]' \\",
        f"        '1:{what}:->{what}' \\",
        "        '*::rest:->rest'",
        "    case $state in",
        f"    {what}) _describe {what} {what}s ;;",
        "    rest)",
        "        case $line[1] in",
    )


def _zsh_parameter(parameter: Parameter) -> str:
    if not is_argument(parameter):
        return _zsh_option(parameter)
    action = _zsh_action(parameter)
    return _quoted(f"{'*' if repeats(parameter) else ''}:{metavar_of(parameter)}:{action}")


def _zsh_option(parameter: Parameter) -> str:
    flags = flags_of(parameter)
    text = _zsh_text(parameter.help)
    if is_flag(parameter):
        specs = [f"{flag}[{text}]" for flag in flags]
    else:
        value = f"[{text}]:{_zsh_text(metavar_of(parameter))}:{_zsh_action(parameter)}"
        # The value is the next word, or the rest of this one, after "=" if the option is a long one.
        specs = [f"{flag}{'=' if flag.startswith('--') else '+'}{value}" for flag in flags]
    front = "*" if repeats(parameter) else f"({' '.join(flags)})" if len(flags) > 1 else ""
    return " ".join(_quoted(front + spec) for spec in specs)


def _zsh_action(parameter: Parameter) -> str:
    if choices_of(parameter):
        return f"({' '.join(choices_of(parameter))})"
    if completes_names(parameter):
        # The space keeps zsh from adding options of its own.
        return f" _kctl_names {completes_names(parameter)}"
    return {"file": "_files", "directory": "_files -/"}.get(completes(parameter), " ")


def _zsh_text(text: str) -> str:
    return "".join(f"\\{character}" if character in "[]:\\" else character for character in text)


def _fish(commands: Commands) -> Iterator[str]:
    yield f"# fish {HEADER.format('fish')}"
    yield from (
        "function __kctl_names",
        "    set -l word (commandline -ct)",
        "    set -l line (commandline -cp)",
        f'    command kctl {PROGRAM_WORD} $argv[1] "$word" "$line" 2> /dev/null',
        "end",
    )
    yield from _fish_words(commands)
    yield "complete -c kctl -f"
    alone = "__kctl_in none"
    for noun in commands:
        yield f"complete -c kctl -n '{alone}' -a {noun} -d {_quoted_fish(str(NOUNS[noun].summary))}"
    yield f"complete -c kctl -n '{alone}' -l version -d 'Print the version.'"
    yield "complete -c kctl -l help -d 'Print help.'"
    for parameter in _common():
        yield f"complete -c kctl -n '{alone}' {_fish_option(parameter)}"
    for noun, verbs in commands.items():
        if noun not in verbs:
            condition = f"__kctl_lacks {noun} {' '.join(verbs)}"
            for verb, command in verbs.items():
                yield f"complete -c kctl -n '{condition}' -a {verb} -d {_quoted_fish(summary_of(command))}"
        for verb, command in verbs.items():
            condition = f"__kctl_in {noun}" if noun in verbs else f"__kctl_in {noun} {verb}"
            for parameter in command.params:
                described = _fish_parameter(parameter)
                if described:
                    yield f"complete -c kctl -n '{condition}' {described}"


def _fish_words(commands: Commands) -> Iterator[str]:
    """Functions that know the noun, the first one in the line: some are also verbs of other nouns."""
    yield from (
        "function __kctl_read",
        "    set -l line (commandline -cp | string collect)",
        '    if not set -q __kctl_line; or test "$line" != "$__kctl_line"',
        "        set -g __kctl_line $line",
        "        set -g __kctl_noun none",
        "        set -g __kctl_rest",
        "        for word in (commandline -opc)[2..-1]",
        '            if test "$__kctl_noun" != none',
        "                set -a __kctl_rest $word",
        f"            else if contains -- $word {' '.join(commands)}",
        "                set -g __kctl_noun $word",
        "            end",
        "        end",
        "    end",
        "end",
        "function __kctl_in  # NOUN [VERB]",
        "    __kctl_read",
        '    test "$argv[1]" = "$__kctl_noun"; or return',
        "    test (count $argv) -eq 1; or contains -- $argv[2] $__kctl_rest",
        "end",
        "function __kctl_lacks  # NOUN VERB...",
        "    __kctl_read",
        '    test "$argv[1]" = "$__kctl_noun"; or return',
        "    for verb in $argv[2..-1]",
        "        contains -- $verb $__kctl_rest; and return 1",
        "    end",
        "    return 0",
        "end",
    )


def _fish_parameter(parameter: Parameter) -> str:
    if not is_argument(parameter):
        return _fish_option(parameter)
    if choices_of(parameter):
        return f"-a {_quoted_fish(' '.join(choices_of(parameter)))}"
    if completes_names(parameter):
        return f"-a '(__kctl_names {completes_names(parameter)})'"
    return "-F" if completes(parameter) else ""


def _fish_option(parameter: Parameter) -> str:
    words = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in flags_of(parameter)]
    if choices_of(parameter):
        words.append(f"-x -a {_quoted_fish(' '.join(choices_of(parameter)))}")
    elif completes_names(parameter):
        words.append(f"-x -a '(__kctl_names {completes_names(parameter)})'")
    elif completes(parameter) == "directory":
        words.append("-x -a '(__fish_complete_directories)'")
    elif completes(parameter):
        words.append("-r -F")
    elif not is_flag(parameter):
        words.append("-x")
    return " ".join([*words, f"-d {_quoted_fish(parameter.help)}"])


def _quoted(text: str) -> str:
    """In single quotes for a POSIX-like shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_fish(text: str) -> str:
    """In single quotes for fish, where a backslash escapes inside them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
