package dataset

import (
	"fmt"
	"io"
)

// Expression is a row of LRA's ListOps files.
type Expression struct {
	Source string // with the parentheses of its binary tree
	Target int    // its value, 0 to 9
}

// ReadExpressions reads basic_train.tsv and the like: TSV with the header Source,
// Target.
func ReadExpressions(r io.Reader) ([]Expression, error) {
	f, err := ReadFields('\t')(r)
	if err != nil {
		return nil, err
	}
	source, err := f.Column("Source")
	if err != nil {
		return nil, err
	}
	target, err := f.Column("Target")
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
