package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table holds rows of text under a head. Columns of numbers are aligned right.
type Table struct {
	Title string     `json:"title,omitempty"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`           // [rows][len(Head)]
	Note  string     `json:"note,omitempty"` // text below the table
}

// checkRows returns an error if a row has another length than the head.
func (t *Table) checkRows() error {
	for i, r := range t.Rows {
		if len(r) != len(t.Head) {
			return fmt.Errorf("table %s: row %d has %d cells, the head has %d", t.Title, i, len(r), len(t.Head))
		}
	}
	return nil
}

// NumericColumns reports for each column whether it holds numbers: every cell that is not empty
// begins with a number, and there is at least one. A column that no row reaches holds none.
func (t *Table) NumericColumns() []bool {
	right := make([]bool, len(t.Head))
	for j := range right {
		some := false
		all := true
		for _, r := range t.Rows {
			if j >= len(r) {
				all = false
				break
			}
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

// isNumeric reports whether a cell begins with a number, possibly after a sign or a
// relation.
func isNumeric(cell string) bool {
	cell = strings.TrimLeft(cell, "+-−±<>≤≥≈~× ")
	cell = strings.TrimPrefix(cell, ".")
	r, _ := utf8.DecodeRuneInString(cell)
	return unicode.IsDigit(r) || strings.HasPrefix(cell, "∞")
}
