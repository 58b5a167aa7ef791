package dataset

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Fields is a table of text.
type Fields struct {
	Names []string
	Rows  [][]string // [rows][len(Names)]
}

// ColumnIndex returns the index of the column with a name. It returns an error that lists the
// names if there is none, or more than one.
func (f *Fields) ColumnIndex(name string) (int, error) {
	i := slices.Index(f.Names, name)
	if i < 0 {
		return 0, fmt.Errorf("column %q: there is none; there are %.200q", name, f.Names)
	}
	if k := slices.Index(f.Names[i+1:], name); k >= 0 {
		return 0, fmt.Errorf("column %q: columns %d and %d have this name", name, i+1, i+2+k)
	}
	return i, nil
}

// ReadFields returns a reader of a table of text. comma separates fields: ',' for CSV, a tab for
// TSV. A CSV may instead have semicolons or tabs, or name its separator in a first line sep=X.
// UTF-16 is decoded. The first row names the columns.
//
// A field that begins with a quote ends with one; quotes inside it are doubled, and it may contain
// separators and line breaks. Elsewhere a quote is an ordinary character. In a TSV all quotes are
// ordinary if it cannot be read by this rule, or if more of its lines have as many fields as the
// first than there would be rows by this rule.
//
// The reader returns an error that names the line if a quote does not end or text follows it, if
// rows differ in length, or if the stream is empty.
func ReadFields(comma rune) func(io.Reader) (*Fields, error) {
	return func(r io.Reader) (*Fields, error) {
		f := &Fields{}
		err := eachRecord(r, comma, func(_ rune, row []string) error {
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

// eachRecord calls each with every record, including the header. comma is the separator that the
// file's name tells; a first line sep=X, or in a CSV findSeparator, tells another one.
func eachRecord(r io.Reader, comma rune, each func(separator rune, row []string) error) error {
	b := bufio.NewReaderSize(infile.NewTable(r), separatorHead)
	if found, declared := findSeparator(b); comma == ',' || declared > 0 {
		comma = found
		_, _ = b.Discard(declared) // it is buffered
	}
	one := func(row []string) error { return each(comma, row) }
	if comma != '\t' {
		return eachQuotedRecord(b, comma, one)
	}
	var text strings.Builder
	if _, err := io.Copy(&text, b); err != nil {
		return err
	}
	return eachTabbedRecord(text.String(), one)
}

// separatorHead bounds the first line of a CSV that tells its separator.
const separatorHead = 1 << 16

// findSeparator returns the separator of a CSV, and the length of a first line sep=X by which some
// spreadsheets declare it. Without such a line, the separator is the semicolon or the tab if the
// first line has one outside quotes, and has commas only in numbers: so spreadsheets write if the
// comma is the decimal point.
func findSeparator(b *bufio.Reader) (separator rune, declared int) {
	var head []byte
	for n := 1; n <= separatorHead; n = len(head) + 1 {
		_, err := b.Peek(n)
		head, _ = b.Peek(b.Buffered())
		if err != nil || bytes.IndexByte(head, '\n') >= 0 {
			break
		}
	}
	line, _, _ := bytes.Cut(head, []byte{'\n'})
	trimmed := bytes.TrimRight(line, "\r")
	if rest, ok := bytes.CutPrefix(bytes.ToLower(trimmed), []byte("sep=")); ok && len(rest) == 1 && rest[0] < utf8.RuneSelf && rest[0] != '"' {
		return rune(rest[0]), min(len(line)+1, len(head))
	}
	counts, quoted := map[byte]int{}, false
	for _, c := range trimmed {
		if c == '"' {
			quoted = !quoted
		} else if !quoted {
			counts[c]++
		}
	}
	areNumbers := func() bool { // whose commas are decimal points
		return !slices.ContainsFunc(strings.Split(string(trimmed), ";"), func(field string) bool { return !isNumber(field, ';') })
	}
	switch {
	case counts[';'] > 0 && (counts[','] == 0 || areNumbers()):
		return ';', 0
	case counts[','] > 0:
	case counts['\t'] > 0:
		return '\t', 0
	}
	return ',', 0
}

// eachTabbedRecord is eachRecord of a TSV. Some programs quote its fields, others never do.
func eachTabbedRecord(text string, each func(row []string) error) error {
	if !strings.Contains(text, `"`) {
		return eachTabbedLine(text, each)
	}
	rows := 0
	quotedErr := eachQuotedRecord(strings.NewReader(text), '\t', func([]string) error { rows++; return nil })
	columns, full := 0, 0 // lines with as many fields as the first
	for line := range strings.Lines(text) {
		if strings.Trim(line, "\r\n") == "" {
			continue
		}
		if n := strings.Count(line, "\t") + 1; columns == 0 || n == columns {
			columns = n
			full++
		}
	}
	if quotedErr == nil && (full <= rows || columns == 1) {
		return eachQuotedRecord(strings.NewReader(text), '\t', each)
	}
	lineErr := eachTabbedLine(text, func([]string) error { return nil })
	switch {
	case lineErr == nil:
		return eachTabbedLine(text, each)
	case quotedErr == nil:
		return fmt.Errorf("quotes join %d lines with all fields to %d rows; with quotes as characters: %w", full, rows, lineErr)
	default:
		return fmt.Errorf("%w; with quotes as characters: %w", quotedErr, lineErr)
	}
}

// eachTabbedLine is eachRecord of lines whose fields are between tabs, with quotes as characters.
// Empty lines are skipped, as by encoding/csv. Fields alias text.
func eachTabbedLine(text string, each func(row []string) error) error {
	columns, n := 0, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line == "" {
			continue
		}
		row := strings.Split(line, "\t")
		if columns == 0 {
			columns = len(row)
		}
		if len(row) != columns {
			return lengthError(n, len(row), columns)
		}
		if err := each(row); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if columns == 0 {
		return errNoHeader
	}
	return nil
}

// eachQuotedRecord is eachRecord of a table with quotes.
func eachQuotedRecord(r io.Reader, comma rune, each func(row []string) error) error {
	var ahead bytes.Buffer // from the end of the last record
	c := csv.NewReader(io.TeeReader(r, &ahead))
	c.Comma = comma
	c.LazyQuotes = true // a quote in an unquoted field is a character
	n := 0
	for ; ; n++ {
		start := c.InputOffset()
		row, err := c.Read()
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, csv.ErrFieldCount) {
			return err
		}
		line, _ := c.FieldPos(0)
		if err := checkQuotes(ahead.Next(int(c.InputOffset()-start)), byte(comma)); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if err != nil {
			return lengthError(line, len(row), c.FieldsPerRecord)
		}
		if err := each(row); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if n == 0 {
		return errNoHeader
	}
	return nil
}

// checkQuotes returns an error if a field of a record begins with a quote that does not end the
// field. csv.Reader with LazyQuotes takes the lines that follow for a part of such a field.
func checkQuotes(record []byte, comma byte) error {
	record = bytes.Trim(record, "\r\n")
	for field := 1; ; field++ {
		rest, quoted := bytes.CutPrefix(record, []byte{'"'})
		for quoted {
			i := bytes.IndexByte(rest, '"')
			if i < 0 {
				return fmt.Errorf("field %d: %.40q begins with a quote that has no end", field, firstLine(record))
			}
			rest = rest[i+1:]
			if rest, quoted = bytes.CutPrefix(rest, []byte{'"'}); !quoted && len(rest) > 0 && rest[0] != comma {
				return fmt.Errorf("field %d: %.40q: text follows the quote that ends it, %.20q; a quote between quotes is doubled", field, firstLine(record), firstLine(rest))
			}
		}
		i := bytes.IndexByte(rest, comma)
		if i < 0 {
			return nil
		}
		record = rest[i+1:]
	}
}

// firstLine returns b up to its first line break.
func firstLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	return line
}

var errNoHeader = errors.New("header: there is none")

// lengthError is the error of a row with another number of fields than the first.
func lengthError(line, got, want int) error {
	return fmt.Errorf("line %d: it has %d fields, the first has %d", line, got, want)
}

// Table is a table of numbers.
type Table struct {
	Index  string    // name of the first column if it holds text, such as dates
	Labels []string  // [rows] the fields of that column
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

// Row returns row i [columns], without copying it from Values.
func (t *Table) Row(i int) []float64 { return t.Values[i*len(t.Names):][:len(t.Names)] }

// ReadTable returns a reader of a table of finite numbers. The first row names the columns, and
// comma separates fields. label names a column of text; with "", the first column is text if its
// first field is no number. The reader returns an error if another field is no finite number, if
// the column is missing, if rows differ in length, or if there are no rows.
func ReadTable(comma rune, label string) func(io.Reader) (*Table, error) {
	return func(r io.Reader) (*Table, error) {
		t := &Table{}
		at, columns, line := -1, 0, 0 // at: column of text
		err := eachRecord(r, comma, func(separator rune, row []string) (err error) {
			line++
			switch line {
			case 1:
				columns = len(row)
				for _, name := range row {
					t.Names = append(t.Names, strings.Clone(strings.TrimSpace(name)))
				}
				if label == "" {
					return nil
				}
				at, err = (&Fields{Names: t.Names}).ColumnIndex(label)
			case 2:
				if _, err := parseNumber(strings.TrimSpace(row[0]), separator); label == "" && err != nil {
					at = 0
				}
			}
			if err != nil {
				return err
			}
			if at >= 0 && len(t.Names) == columns {
				t.Index = t.Names[at]
				if t.Names = slices.Delete(t.Names, at, at+1); len(t.Names) == 0 {
					return fmt.Errorf("columns: there is none of numbers beside %q", t.Index)
				}
			}
			if line == 1 {
				return nil
			}
			column := 0
			for i, field := range row {
				if i == at {
					t.Labels = append(t.Labels, strings.Clone(field))
					continue
				}
				x, err := parseNumber(strings.TrimSpace(field), separator)
				if err != nil {
					return fmt.Errorf("%s: %w", t.Names[column], err)
				}
				column++
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
}

// FindDisorder returns the first row whose label is an earlier time than the label of the row
// before. Labels are compared if they are numbers, or if they begin with a year and have the same
// length; other labels are not.
func (t *Table) FindDisorder() (row int, found bool) {
	const yearFirst = "2006-"
	for i := 1; i < len(t.Labels); i++ {
		a, b := strings.TrimSpace(t.Labels[i-1]), strings.TrimSpace(t.Labels[i])
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		isDate := len(a) == len(b) && len(a) > len(yearFirst) && a[len(yearFirst)-1] == b[len(yearFirst)-1] && strings.ContainsRune("-/.", rune(a[len(yearFirst)-1])) && !strings.ContainsFunc(a[:4]+b[:4], func(r rune) bool { return r < '0' || r > '9' })
		if errX == nil && errY == nil && y < x || isDate && b < a {
			return i, true
		}
	}
	return 0, false
}

// parseNumber parses a finite number of a table with that separator. Between semicolons a comma may
// be the decimal point. It returns an error if s is no number.
func parseNumber(s string, separator rune) (float64, error) {
	number := s
	if separator == ';' && strings.Count(s, ",") == 1 && !strings.Contains(s, ".") {
		number = strings.Replace(s, ",", ".", 1)
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || x-x != 0 {
		return 0, fmt.Errorf("%.40q is no finite number", s)
	}
	return x, nil
}
