package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Fields is text in columns.
type Fields struct {
	Names []string
	Rows  [][]string // each as long as Names
}

// Column returns the number of the column of that name.
func (f *Fields) Column(name string) (int, error) {
	i := slices.Index(f.Names, name)
	if i < 0 {
		return 0, fmt.Errorf("column %q: there is none; there are %q", name, f.Names)
	}
	return i, nil
}

// ReadFields returns a reader of columns of text that comma separates: ',' for
// CSV, a tab for TSV. Fields may be quoted, and then hold line breaks; a quote
// within a field that does not begin with one is a character. The first row
// names the columns.
func ReadFields(comma rune) func(io.Reader) (*Fields, error) {
	return func(r io.Reader) (*Fields, error) {
		f := &Fields{}
		err := records(r, comma, func(row []string) error {
			if f.Names == nil {
				f.Names = row
				return nil
			}
			f.Rows = append(f.Rows, row)
			return nil
		})
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

// records calls each with every record, the header included.
func records(r io.Reader, comma rune, each func(row []string) error) error {
	c := csv.NewReader(r)
	c.Comma = comma
	c.LazyQuotes = true
	n := 0
	for ; ; n++ {
		row, err := c.Read()
		if err == io.EOF {
			break
		}
		if errors.Is(err, csv.ErrFieldCount) {
			line, _ := c.FieldPos(0)
			return fmt.Errorf("line %d: it has %d fields, the first has %d", line, len(row), c.FieldsPerRecord)
		}
		if err != nil {
			return err
		}
		if err := each(row); err != nil {
			line, _ := c.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if n == 0 {
		return errors.New("header: there is none")
	}
	return nil
}

// Table is numbers in columns, row by row.
type Table struct {
	Index  string   // name of the first column where that is not a number, such as a date
	Labels []string // its fields, one for each row
	Names  []string // of the columns of numbers
	Values []float64
}

// Rows returns the number of rows, 0 where there are no columns.
func (t *Table) Rows() int {
	if len(t.Names) == 0 {
		return 0
	}
	return len(t.Values) / len(t.Names)
}

// Row returns the numbers of row i.
func (t *Table) Row(i int) []float64 { return t.Values[i*len(t.Names):][:len(t.Names)] }

// ReadTable reads a CSV of finite numbers under a header. The first column may be
// text, which is so if it is in the first row.
func ReadTable(r io.Reader) (*Table, error) {
	t := &Table{}
	header, first := true, true
	err := records(r, ',', func(row []string) error {
		if header {
			header = false
			t.Names = row
			return nil
		}
		if first {
			first = false
			if _, err := strconv.ParseFloat(row[0], 64); err != nil {
				t.Index, t.Names = t.Names[0], t.Names[1:]
			}
			if len(t.Names) == 0 {
				return fmt.Errorf("%s: %q; the only column is no number", t.Index, row[0])
			}
		}
		if t.Index != "" || len(row) > len(t.Names) {
			t.Labels = append(t.Labels, row[0])
			row = row[1:]
		}
		for i, field := range row {
			x, err := number(field)
			if err != nil {
				return fmt.Errorf("%s: %w", t.Names[i], err)
			}
			t.Values = append(t.Values, x)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(t.Values) == 0 {
		return nil, errors.New("rows: there is none")
	}
	return t, nil
}

// number reads a finite number.
func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || x-x != 0 {
		return 0, fmt.Errorf("%.40q is no finite number", s)
	}
	return x, nil
}
