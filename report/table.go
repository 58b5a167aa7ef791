package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table is rows of text under a head. Columns of numbers are set to the right.
type Table struct {
	Title string     `json:"title,omitempty"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`           // each as long as Head
	Note  string     `json:"note,omitempty"` // below it
}

func (t *Table) checkRows() error {
	for i, r := range t.Rows {
		if len(r) != len(t.Head) {
			return fmt.Errorf("table %s: row %d has %d cells, the head has %d", t.Title, i, len(r), len(t.Head))
		}
	}
	return nil
}

// NumericColumns tells of each column whether it holds numbers: every cell that is not
// empty begins with one, and some cell does.
func (t *Table) NumericColumns() []bool {
	right := make([]bool, len(t.Head))
	for j := range right {
		some := false
		all := true
		for _, r := range t.Rows {
			switch cell := strings.TrimSpace(r[j]); {
			case cell == "" || cell == "–" || cell == "—" || cell == "-":
			case isNumeric(cell):
				some = true
			default:
				all = false
			}
		}
		right[j] = some && all
	}
	return right
}

// isNumeric tells whether a cell begins with a number, with a sign or a relation
// before it or without.
func isNumeric(cell string) bool {
	cell = strings.TrimLeft(cell, "+-−±<>≤≥≈~× ")
	cell = strings.TrimPrefix(cell, ".")
	r, _ := utf8.DecodeRuneInString(cell)
	return unicode.IsDigit(r) || strings.HasPrefix(cell, "∞")
}
