package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Fields is a table of text.
type Fields struct {
	Names []string
	Rows  [][]string // [rows][len(Names)]
}

// ColumnIndex returns the index of the column with a name. It returns an error that lists all
// names if there is none.
func (f *Fields) ColumnIndex(name string) (int, error) {
	i := slices.Index(f.Names, name)
	if i < 0 {
		return 0, fmt.Errorf("column %q: there is none; there are %q", name, f.Names)
	}
	return i, nil
}

// ReadFields returns a reader of a table of text with separator comma: ',' for CSV, a tab for
// TSV. The first row names the columns. Quoted fields may contain line breaks; a quote inside an
// unquoted field is a character. The reader returns an error if rows differ in length or the
// stream is empty.
func ReadFields(comma rune) func(io.Reader) (*Fields, error) {
	return func(r io.Reader) (*Fields, error) {
		f := &Fields{}
		err := eachRecord(r, comma, func(row []string) error {
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

// eachRecord calls each with every record, including the header.
func eachRecord(r io.Reader, comma rune, each func(row []string) error) error {
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

// Table is a table of numbers.
type Table struct {
	Index  string    // name of the first column if it is text, such as a date
	Labels []string  // [rows] fields of that column
	Names  []string  // [columns] names of the numeric columns
	Values []float64 // [rows, columns]
}

// Rows returns the number of rows, or 0 if there are no columns.
func (t *Table) Rows() int {
	if len(t.Names) == 0 {
		return 0
	}
	return len(t.Values) / len(t.Names)
}

// Row returns row i [columns]. The result aliases Values.
func (t *Table) Row(i int) []float64 { return t.Values[i*len(t.Names):][:len(t.Names)] }

// ReadTable reads a CSV of finite numbers with a header. The first column is text if its first
// field is no number. It returns an error if another field is no finite number, rows differ in
// length or there are no rows.
func ReadTable(r io.Reader) (*Table, error) {
	t := &Table{}
	header, first := true, true
	err := eachRecord(r, ',', func(row []string) error {
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
			x, err := parseNumber(field)
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

// parseNumber parses a finite number. It returns an error if s is none.
func parseNumber(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || x-x != 0 {
		return 0, fmt.Errorf("%.40q is no finite number", s)
	}
	return x, nil
}
