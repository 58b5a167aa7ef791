package dataset

import (
	"fmt"
	"io"
)

// Expression is a row of a ListOps file of the Long Range Arena.
type Expression struct {
	Source string // expression with the parentheses of its binary tree
	Target int    // value, 0 to 9
}

// ReadExpressions reads a ListOps file: TSV with the columns Source and Target. It returns an
// error if a column is missing or a target is no digit.
func ReadExpressions(r io.Reader) ([]Expression, error) {
	f, err := ReadFields('\t')(r)
	if err != nil {
		return nil, err
	}
	source, err := f.ColumnIndex("Source")
	if err != nil {
		return nil, err
	}
	target, err := f.ColumnIndex("Target")
	if err != nil {
		return nil, err
	}
	list := make([]Expression, len(f.Rows))
	for i, row := range f.Rows {
		t := row[target]
		if len(t) != 1 || t[0] < '0' || t[0] > '9' {
			return nil, fmt.Errorf("row %d: Target is %.20q, a digit is needed", i, t)
		}
		list[i] = Expression{row[source], int(t[0] - '0')}
	}
	return list, nil
}
