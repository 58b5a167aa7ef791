# Completion of farfield for bash: source <(farfield completion bash)
_farfield() {
    local word=${COMP_WORDS[COMP_CWORD]} line
    COMPREPLY=()
    [[ $word == = ]] && word=
    while IFS= read -r line; do
        case $line in
        :files)
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word")
            ;;
        :folders)
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$word")
            ;;
        *)
            line=${line%%$'\t'*}
            [[ $line == *= ]] && compopt -o nospace 2>/dev/null
            COMPREPLY+=("$line")
            ;;
        esac
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _farfield farfield
