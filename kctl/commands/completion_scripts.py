"""Completion scripts made from the declarations of all commands.

They are static: pressing TAB starts no Python.  They know nouns, verbs, options, the values of options with a fixed
choice, and where a file is wanted.  What a cluster holds (names of topics and groups) they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kctl.commands.catalog import NOUNS
from kctl.commands.declaration import Argument, Command, Group, Option, Parameter
from kctl.commands.options import CLUSTER_OPTIONS, OUTPUT_OPTIONS, all_parameters, flags_of

Groups = Mapping[str, Group]

HEADER = "completion for kctl, made by `kctl completion {}`; ./dev completions renews it."


def script_for(shell: str, groups: Groups) -> str:
    """The whole script for bash, zsh or fish."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return "\n".join([*makers[shell](groups), ""])


def _bash(groups: Groups) -> Iterator[str]:
    leading = [parameter for parameter in CLUSTER_OPTIONS + OUTPUT_OPTIONS if not parameter.is_flag]
    yield f"# bash {HEADER.format('bash')}"
    yield from (
        "_kctl() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}",
        "    local noun='' verb='' words='' flags='' kind='' position",
        "    COMPREPLY=()",
        "    for ((position = 1; position < COMP_CWORD; position++)); do",
        "        case ${COMP_WORDS[position]} in",
        f"        {_alternatives(leading)}) ((position++)) ;;",
        "        -*) ;;",
        "        *)",
        "            if [[ -n $noun ]]; then verb=${COMP_WORDS[position]} && break; fi",
        "            noun=${COMP_WORDS[position]}",
        "            ;;",
        "        esac",
        "    done",
        "    case $noun in",
    )
    yield f"    '') words='{' '.join(groups)}' flags='{_flags(CLUSTER_OPTIONS + OUTPUT_OPTIONS)} --version' ;;"
    for noun, group in groups.items():
        if group.is_verb:
            yield f"    {noun}) verb={noun} ;;"
        else:
            yield f"    {noun}) [[ -n $verb ]] || words='{' '.join(group.commands)}' flags=--help ;;"
    yield from ("    esac", '    case "$noun $verb" in', "    *' ')")
    yield from _bash_values(leading, argument=None)
    for noun, group in groups.items():
        for command in group.commands.values():
            yield f"    '{noun} {command.name}')"
            yield from _bash_command(command)
    yield from (
        "    esac",
        "    case $kind in",
        '    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;',
        '    directory) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;',
        "    none) ;;",
        "    *)",
        "        [[ $cur == -* ]] && words=$flags",
        '        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
        "        ;;",
        "    esac",
        "}",
        "complete -o filenames -F _kctl kctl",
    )


def _bash_command(command: Command) -> Iterator[str]:
    parameters = all_parameters(command)
    options = [parameter for parameter in parameters if isinstance(parameter.declared, Option)]
    argument = next((one for one in parameters if isinstance(one.declared, Argument)), None)
    yield f"        flags='{_flags(options)}'"
    if argument is not None and argument.declared.choices:
        yield f"        words='{' '.join(argument.declared.choices)}'"
    yield from _bash_values(options, argument)


def _bash_values(options: Sequence[Parameter], argument: Parameter | None) -> Iterator[str]:
    """What may stand behind an option, or as an argument."""
    yield "        case $prev in"
    for option in options:
        if option.declared.choices:
            yield f"        {_alternatives([option])}) words='{' '.join(option.declared.choices)}' flags='' ;;"
        elif option.declared.complete:
            yield f"        {_alternatives([option])}) kind='{option.declared.complete}' ;;"
    free = [one for one in options if not (one.is_flag or one.declared.choices or one.declared.complete)]
    if free:
        yield f"        {_alternatives(free)}) kind='none' ;;"
    if argument is not None and argument.declared.complete:
        yield f"        *) [[ $cur == -* ]] || kind='{argument.declared.complete}' ;;"
    yield from ("        esac", "        ;;")


def _alternatives(options: Iterable[Parameter]) -> str:
    return " | ".join(flag for option in options for flag in flags_of(option))


def _flags(options: Iterable[Parameter]) -> str:
    return " ".join([*(flag for option in options for flag in flags_of(option)), "--help"])


def _zsh(groups: Groups) -> Iterator[str]:
    yield from ("#compdef kctl", f"# zsh {HEADER.format('zsh')}", "", "_kctl() {")
    yield from _zsh_choice(
        "noun",
        [(noun, NOUNS[noun][1]) for noun in groups],
        [*map(_zsh_option, CLUSTER_OPTIONS + OUTPUT_OPTIONS), "'--version[Print the version.]'"],
    )
    for noun, group in groups.items():
        function = f"_kctl_{noun}" if not group.is_verb else f"_kctl_{noun}_{noun}"
        yield f"        {noun}) {function} ;;"
    yield from ("        esac", "        ;;", "    esac", "}")
    for noun, group in groups.items():
        if not group.is_verb:
            yield from ("", f"_kctl_{noun}() {{")
            yield from _zsh_choice("verb", [(one.name, one.summary) for one in group.commands.values()], [])
            yield from (f"        {verb}) _kctl_{noun}_{verb} ;;" for verb in group.commands)
            yield from ("        esac", "        ;;", "    esac", "}")
        for command in group.commands.values():
            yield from ("", f"_kctl_{noun}_{command.name}() {{", "    _arguments -s \\")
            yield from (f"        {_zsh_parameter(parameter)} \\" for parameter in all_parameters(command))
            yield from ("        '(- *)--help[Print help.]'", "}")
    yield from ("", '_kctl "$@"')


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
    if isinstance(parameter.declared, Option):
        return _zsh_option(parameter)
    action = _zsh_action(parameter)
    return _quoted(f"{'*' if parameter.repeats else ''}:{parameter.metavar}:{action}")


def _zsh_option(parameter: Parameter) -> str:
    flags = flags_of(parameter)
    text = _zsh_text(parameter.declared.help)
    value = "" if parameter.is_flag else f":{_zsh_text(parameter.metavar)}:{_zsh_action(parameter)}"
    if parameter.repeats:
        return " ".join(_quoted(f"*{flag}[{text}]{value}") for flag in flags)
    if len(flags) == 1:
        return _quoted(f"{flags[0]}[{text}]{value}")
    together = f"({' '.join(flags)})"
    return " ".join(_quoted(f"{together}{flag}[{text}]{value}") for flag in flags)


def _zsh_action(parameter: Parameter) -> str:
    if parameter.declared.choices:
        return f"({' '.join(parameter.declared.choices)})"
    return {"file": "_files", "directory": "_files -/"}.get(parameter.declared.complete, " ")


def _zsh_text(text: str) -> str:
    return "".join(f"\\{character}" if character in "[]:\\" else character for character in text)


def _fish(groups: Groups) -> Iterator[str]:
    yield f"# fish {HEADER.format('fish')}"
    yield "complete -c kctl -f"
    nouns = " ".join(groups)
    alone = f"not __fish_seen_subcommand_from {nouns}"
    for noun in groups:
        yield f"complete -c kctl -n '{alone}' -a {noun} -d {_quoted_fish(NOUNS[noun][1])}"
    yield f"complete -c kctl -n '{alone}' -l version -d 'Print the version.'"
    yield "complete -c kctl -l help -d 'Print help.'"
    for parameter in CLUSTER_OPTIONS + OUTPUT_OPTIONS:
        yield f"complete -c kctl -n '{alone}' {_fish_option(parameter)}"
    for noun, group in groups.items():
        seen = f"__fish_seen_subcommand_from {noun}"
        if not group.is_verb:
            verbs = " ".join(group.commands)
            for command in group.commands.values():
                condition = f"{seen}; and not __fish_seen_subcommand_from {verbs}"
                yield f"complete -c kctl -n '{condition}' -a {command.name} -d {_quoted_fish(command.summary)}"
        for command in group.commands.values():
            condition = seen if group.is_verb else f"{seen}; and __fish_seen_subcommand_from {command.name}"
            for parameter in all_parameters(command):
                described = _fish_parameter(parameter)
                if described:
                    yield f"complete -c kctl -n '{condition}' {described}"


def _fish_parameter(parameter: Parameter) -> str:
    if isinstance(parameter.declared, Option):
        return _fish_option(parameter)
    if parameter.declared.choices:
        return f"-a {_quoted_fish(' '.join(parameter.declared.choices))}"
    return "-F" if parameter.declared.complete else ""


def _fish_option(parameter: Parameter) -> str:
    words = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in flags_of(parameter)]
    if parameter.declared.choices:
        words.append(f"-x -a {_quoted_fish(' '.join(parameter.declared.choices))}")
    elif parameter.declared.complete == "directory":
        words.append("-x -a '(__fish_complete_directories)'")
    elif parameter.declared.complete:
        words.append("-r -F")
    elif not parameter.is_flag:
        words.append("-x")
    return " ".join([*words, f"-d {_quoted_fish(parameter.declared.help)}"])


def _quoted(text: str) -> str:
    """In single quotes for a POSIX-like shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_fish(text: str) -> str:
    """In single quotes for fish, where a backslash escapes inside them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
