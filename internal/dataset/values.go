package dataset

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/farfield-ml/farfield/internal/array"
)

// Values holds rows of numbers: a sequence or a set.
type Values struct {
	Names     []string  // [Columns], trimmed; nil: the file has no header
	Columns   int       // numeric columns
	Numbers   []float32 // [rows, Columns]
	Numbers64 []float64 // [rows, Columns] as in the file; nil: float32 is exact enough to tell rows apart
	Labels    []string  // [rows]; nil: no labels
}

// Rows returns the number of rows.
func (v *Values) Rows() int {
	if v.Columns < 1 {
		return 0
	}
	return len(v.Numbers) / v.Columns
}

// ReadValues reads a file, plain or compressed: an .npy array [N, C] or [N], or a .csv or .tsv
// table. label names the column of labels in a table; "": none. It returns an error if the suffix
// is unknown or the file is malformed.
func ReadValues(path, label string) (*Values, error) {
	switch suffix := strings.ToLower(filepath.Ext(TrimSuffix(path))); suffix {
	case ".npy":
		return ReadFile(path, ReadValuesNPY)
	case ".csv":
		return ReadFile(path, ReadValuesTable(',', label))
	case ".tsv":
		return ReadFile(path, ReadValuesTable('\t', label))
	default:
		return nil, fmt.Errorf("%s: its name ends in %q; .csv, .tsv and .npy are read, plain or .gz", path, suffix)
	}
}

// ReadValuesTable returns a reader of a table of finite numbers, whose fields comma separates. The
// first row names the columns if none of its fields is a number, and at least one is a name and not
// a mark of a missing number such as "", ? or NA. label names the column of labels, which the first
// row must then have; "": none. The reader returns an error if a field is no number that float32
// can hold, if the column of labels is missing, or if there are no rows.
func ReadValuesTable(comma rune, label string) func(io.Reader) (*Values, error) {
	return func(r io.Reader) (*Values, error) {
		v := &Values{}
		at := -1 // column of labels
		first := true
		var numbers []float64
		err := eachRecord(r, comma, func(separator rune, row []string) (err error) {
			hint := ""
			if first {
				first, hint = false, "; a row of names has no numbers"
				v.Columns = len(row)
				if label != "" {
					if at, err = (&Fields{Names: row}).ColumnIndex(label); err != nil {
						return err
					}
					row = slices.Delete(slices.Clone(row), at, at+1)
					v.Columns, v.Labels = len(row), []string{}
				}
				if v.Columns == 0 {
					return errors.New("columns: there is none of numbers")
				}
				if label != "" || isHeader(row, separator) {
					for _, name := range row {
						v.Names = append(v.Names, strings.Clone(strings.TrimSpace(name))) // name holds the text of the table
					}
					return nil
				}
			}
			for i, field := range row {
				if i == at {
					v.Labels = append(v.Labels, field)
					continue
				}
				x, err := parseNumber(strings.TrimSpace(field), separator)
				if err == nil && math.Abs(x) > math.MaxFloat32 {
					err = fmt.Errorf("%.40q is beyond %g", field, float32(math.MaxFloat32))
				}
				if err != nil {
					return fmt.Errorf("column %d: %w%s", i+1, err, hint)
				}
				numbers = append(numbers, x)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(numbers) == 0 {
			return nil, errors.New("rows: there is none")
		}
		v.setNumbers(numbers)
		return v, nil
	}
}

// setNumbers sets the numbers to x [rows, Columns]. Rounding to 32 bits moves a number by at most
// 2^-24 of its size. Numbers64 keeps the columns in which that may be more than 2^-13 of their range,
// such as seconds since 1970. It overwrites x.
func (v *Values) setNumbers(x []float64) {
	v.Numbers = make([]float32, len(x))
	for c := range v.Columns {
		least, most, isRounded := math.Inf(1), math.Inf(-1), false
		for i := c; i < len(x); i += v.Columns {
			v.Numbers[i] = float32(x[i])
			least, most = min(least, x[i]), max(most, x[i])
			isRounded = isRounded || float64(v.Numbers[i]) != x[i]
		}
		if isRounded && max(-least, most) > 1<<11*(most-least) {
			v.Numbers64 = x
			continue
		}
		for i := c; i < len(x); i += v.Columns {
			x[i] = float64(v.Numbers[i])
		}
	}
}

// isHeader reports whether a row names columns: no field is a number, and one is a name.
func isHeader(row []string, separator rune) bool {
	isNumber := func(field string) bool { return isNumber(field, separator) }
	return !slices.ContainsFunc(row, isNumber) && slices.ContainsFunc(row, isName)
}

// isNumber reports whether a field has the form of a number, of any size.
func isNumber(field string, separator rune) bool {
	field = strings.TrimSpace(field)
	if _, err := parseNumber(field, separator); err == nil {
		return true
	}
	_, err := strconv.ParseFloat(field, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// isName reports whether a field has a letter and is no mark of a missing number.
func isName(field string) bool {
	field = strings.TrimSpace(field)
	missing := []string{"na", "n/a", "#n/a", "<na>", "null", "none"}
	return strings.ContainsFunc(field, unicode.IsLetter) && !slices.Contains(missing, strings.ToLower(field))
}

// ReadValuesNPY reads an array [N, C] or [N] of finite numbers in numpy's format .npy. It returns
// an error if the file is malformed, if bytes follow the array, if the shape is another, or if a
// number is not finite.
func ReadValuesNPY(r io.Reader) (*Values, error) {
	a, err := array.ReadNPY(r)
	if err != nil {
		return nil, err
	}
	if len(a.Shape) < 1 || len(a.Shape) > 2 {
		return nil, fmt.Errorf("shape: it is %v, [N, C] or [N] is needed", a.Shape)
	}
	v := &Values{Columns: 1}
	if len(a.Shape) == 2 {
		v.Columns = a.Shape[1]
	}
	if a.Shape[0] == 0 || v.Columns == 0 {
		return nil, fmt.Errorf("shape: it is %v, a row and a column are needed", a.Shape)
	}
	if err := checkEnd(r); err != nil {
		return nil, err
	}
	if a.DType == array.F4 {
		v.Numbers, err = a.Float32()
	} else {
		var x []float64
		if x, err = toFloat64(a); err == nil {
			v.setNumbers(x)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, x := range v.Numbers {
		if x-x != 0 {
			return nil, fmt.Errorf("row %d: column %d: %v is no finite number of 32 bits", i/v.Columns, i%v.Columns+1, x)
		}
	}
	return v, nil
}

// toFloat64 converts an array of 64 bits or of integers. It returns an error for other types.
func toFloat64(a *array.Array) ([]float64, error) {
	if x, err := a.Int64(); err == nil {
		list := make([]float64, len(x))
		for i := range x {
			list[i] = float64(x[i])
		}
		return list, nil
	}
	x, err := a.Float64()
	if err != nil {
		return nil, fmt.Errorf("type: it is %v, numbers are needed", a.DType)
	}
	return x, nil
}
