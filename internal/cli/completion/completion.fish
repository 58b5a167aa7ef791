# Completion of farfield for fish: farfield completion fish | source
function __farfield_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    for line in ($before[1] complete -- $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$word"
            case ':folders'
                __fish_complete_directories "$word"
            case '*'
                echo $line
        end
    end
end
complete -c farfield -f -a '(__farfield_complete)'
