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

	"github.com/farfield-ml/farfield/array"
)

// Values is a sequence or a set of rows of numbers.
type Values struct {
	Names   []string  // [Columns]; nil: no header
	Columns int       // numeric columns
	Numbers []float32 // [rows, Columns]
	Labels  []string  // [rows]; nil: no labels
}

// Rows returns the number of rows.
func (v *Values) Rows() int { return len(v.Numbers) / v.Columns }

// ReadValues reads a file .npy, an array [N, C] or [N], or a table .csv or .tsv, plain or gzip.
// label names the column of labels of a table; "" means none. It returns an error if the suffix
// is unknown or the file malformed.
func ReadValues(path, label string) (*Values, error) {
	switch suffix := strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz"))); suffix {
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

// ReadValuesTable returns a reader of a table of finite numbers with separator comma. The first
// row names the columns if one of its fields is no number. label names the column of labels; ""
// means none. The reader returns an error if a field is no number that float32 can hold, the
// column of labels is missing or there are no rows.
func ReadValuesTable(comma rune, label string) func(io.Reader) (*Values, error) {
	return func(r io.Reader) (*Values, error) {
		v := &Values{}
		at := -1 // column of labels
		first := true
		err := eachRecord(r, comma, func(row []string) error {
			if first {
				first = false
				v.Columns = len(row)
				if slices.ContainsFunc(row, func(s string) bool { _, err := strconv.ParseFloat(strings.TrimSpace(s), 64); return err != nil }) {
					v.Names = row
				}
				if label != "" {
					if at = slices.Index(row, label); at < 0 {
						return fmt.Errorf("column %q: there is none; there are %.200q", label, row)
					}
					v.Names, v.Columns = slices.Delete(slices.Clone(row), at, at+1), len(row)-1
					v.Labels = []string{}
				}
				if v.Columns == 0 {
					return errors.New("columns: there is none of numbers")
				}
				if v.Names != nil {
					return nil
				}
			}
			for i, field := range row {
				if i == at {
					v.Labels = append(v.Labels, field)
					continue
				}
				x, err := parseNumber(strings.TrimSpace(field))
				if err == nil && math.Abs(x) > math.MaxFloat32 {
					err = fmt.Errorf("%.40q is beyond %g", field, float32(math.MaxFloat32))
				}
				if err != nil {
					return fmt.Errorf("column %d: %w", i+1, err)
				}
				v.Numbers = append(v.Numbers, float32(x))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(v.Numbers) == 0 {
			return nil, errors.New("rows: there is none")
		}
		return v, nil
	}
}

// ReadValuesNPY reads finite numbers [N, C] or [N] in numpy's format .npy. It returns an error if
// the file is malformed, the shape is another or a number is not finite.
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
	if v.Numbers, err = toFloat32(a); err != nil {
		return nil, err
	}
	for i, x := range v.Numbers {
		if x-x != 0 {
			return nil, fmt.Errorf("row %d: column %d: %v is no finite number of 32 bits", i/v.Columns, i%v.Columns+1, x)
		}
	}
	return v, nil
}

// toFloat32 converts an array of any numeric type. It returns an error for other types.
func toFloat32(a *array.Array) ([]float32, error) {
	if x, err := a.Float32(); err == nil {
		return x, nil
	}
	if x, err := a.Int64(); err == nil {
		list := make([]float32, len(x))
		for i := range x {
			list[i] = float32(x[i])
		}
		return list, nil
	}
	x, err := a.Float64()
	if err != nil {
		return nil, fmt.Errorf("type: it is %v, numbers are needed", a.DType)
	}
	list := make([]float32, len(x))
	for i := range x {
		list[i] = float32(x[i])
	}
	return list, nil
}
