package task

import (
	"cmp"
	"slices"
	"strconv"
)

// sortClasses sorts the names of classes, and removes names that repeat: by number if all are
// integers, so that 2 precedes 10 and class i of the labels 0, 1, 2, … is i, otherwise by text.
// It returns the index of each name.
func sortClasses(names []string) ([]string, map[string]int32) {
	numbers := make(map[string]int64, len(names))
	for _, name := range names {
		n, err := strconv.ParseInt(name, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != name {
			numbers = nil
			break
		}
		numbers[name] = n
	}
	if numbers == nil {
		slices.Sort(names)
	} else {
		slices.SortFunc(names, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
	}
	names = slices.Compact(names)
	index := make(map[string]int32, len(names))
	for i, name := range names {
		index[name] = int32(i)
	}
	return names, index
}
