# Completion of voxeld and voxel in bash.  It knows no option: it asks the program for its --help.
#
# SPDX-License-Identifier: Apache-2.0

# _voxel_options: the options that a help on stdin names, one a line.
_voxel_options() {
    grep -oE '(^|[^[:alnum:]_-])--?[a-z][a-z0-9-]*' | grep -oE -- '--?[a-z][a-z0-9-]*$' |
        grep -E -- '^(--.+|-[a-z])$' | sort -u
}

# _voxel_commands PROGRAM: the commands that its --help lists, two blanks in.
_voxel_commands() {
    "$1" --help 2>/dev/null | sed -nE 's/^  (voxeld )?([a-z][a-z-]*)( .*|$)/\2/p' |
        grep -vxF -- "${1##*/}" | sort -u
}

# _voxel_values HELP OPTION: the words of OPTION one|two|three in a help.
_voxel_values() {
    sed -nE "s/^ .*$2 (([a-z0-9]+\|)+[a-z0-9]+)([] ].*|\$)/\1/p" <<<"$1" | head -n 1 | tr '|' '\n'
}

_voxel() {
    local program=$1 word=$2 before=$3 help
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_voxel_commands "$program") --help --version" -- "$word")
        return
    fi
    help=$("$program" "${COMP_WORDS[1]}" --help 2>/dev/null) || return
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_voxel_options <<<"$help") --help" -- "$word") ;;
    *)
        [[ $before != -* ]] ||
            mapfile -t COMPREPLY < <(compgen -W "$(_voxel_values "$help" "$before")" -- "$word")
        ;;
    esac
}

# Without an answer, names of files.
complete -o default -F _voxel voxeld voxel
