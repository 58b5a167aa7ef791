package mechanism

import "slices"

// nearestNames returns at most three names, nearest first, whose edit distance from
// name is at most a third of its length, or 1.
func nearestNames(name string, names []string) []string {
	limit := max(1, len(name)/3)
	var near []string
	for _, other := range names {
		if name != "" && editDistance(name, other) <= limit {
			near = append(near, other)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return editDistance(name, a) - editDistance(name, b) })
	return near[:min(3, len(near))]
}

// editDistance returns the number of bytes to insert, delete or replace to turn a into
// b (Levenshtein 1966).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance of the first i bytes of a to the first j of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
