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

// Values is a sequence of rows of numbers, or a set of them.
type Values struct {
	Names   []string  // of the columns of numbers; nil: the file has none
	Columns int       // of numbers
	Numbers []float32 // [rows, Columns]
	Labels  []string  // of each row; nil: the file has none
}

// Rows returns the number of rows.
func (v *Values) Rows() int { return len(v.Numbers) / v.Columns }

// ReadValues reads the file of that path: .npy, an array [N, C] or [N], or .csv or .tsv,
// plain or gzip. label names the column of labels of a table; "": there is none.
func ReadValues(path, label string) (*Values, error) {
	switch suffix := strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz"))); suffix {
	case ".npy":
		return File(path, ReadValuesNPY)
	case ".csv":
		return File(path, ReadValuesTable(',', label))
	case ".tsv":
		return File(path, ReadValuesTable('\t', label))
	default:
		return nil, fmt.Errorf("%s: its name ends in %q; .csv, .tsv and .npy are read, plain or .gz", path, suffix)
	}
}

// ReadValuesTable returns a reader of columns of finite numbers that comma separates.
// The first row names the columns if one of its fields is no number. label names the
// column of labels, which are text; "": there is none.
func ReadValuesTable(comma rune, label string) func(io.Reader) (*Values, error) {
	return func(r io.Reader) (*Values, error) {
		v := &Values{}
		at := -1 // of the labels
		first := true
		err := records(r, comma, func(row []string) error {
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
				x, err := number(strings.TrimSpace(field))
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

// ReadValuesNPY reads finite numbers of shape [N, C], or [N], in numpy's format .npy.
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
	if v.Numbers, err = floats(a); err != nil {
		return nil, err
	}
	for i, x := range v.Numbers {
		if x-x != 0 {
			return nil, fmt.Errorf("row %d: column %d: %v is no finite number of 32 bits", i/v.Columns, i%v.Columns+1, x)
		}
	}
	return v, nil
}

// floats returns the numbers of an array of any type of numbers.
func floats(a *array.Array) ([]float32, error) {
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
