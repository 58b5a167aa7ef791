package mechanism

import "slices"

// nearest returns at most three of names, nearest first: those within two thirds
// of the name's own length, or all that are equally near where none is.
func nearest(name string, names []string) []string {
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int { return distance(name, a) - distance(name, b) })
	limit := max(distance(name, sorted[0]), 2*len(name)/3)
	n := 1
	for n < min(3, len(sorted)) && distance(name, sorted[n]) <= limit {
		n++
	}
	return sorted[:n]
}

// distance is the number of letters to insert, delete or replace (Levenshtein
// 1966) that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a's first i letters
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
