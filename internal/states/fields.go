package states

import (
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// A Field is a slice of numbers of a state. One of its three slices is set.
type Field struct {
	Counts   []int64
	Elements []tensor.Float
	Wide     []float64
}

// Fields lists all numbers of a state of constant size, in the order of its snapshot. A state
// of sums lists them once, and then copies, clears, measures, writes and reads them with the
// methods of Fields.
type Fields []Field

// AddElements appends a field of elements for each list.
func (f Fields) AddElements(lists ...[]tensor.Float) Fields {
	for _, x := range lists {
		f = append(f, Field{Elements: x})
	}
	return f
}

// AddWide appends a field of float64 numbers for each list.
func (f Fields) AddWide(lists ...[]float64) Fields {
	for _, x := range lists {
		f = append(f, Field{Wide: x})
	}
	return f
}

// AddCounts appends a field of counts for each list.
func (f Fields) AddCounts(lists ...[]int64) Fields {
	for _, x := range lists {
		f = append(f, Field{Counts: x})
	}
	return f
}

// Copy copies the numbers of from, the fields of a state of the same shape, into f.
func (f Fields) Copy(from Fields) {
	for i, x := range from {
		copy(f[i].Counts, x.Counts)
		copy(f[i].Elements, x.Elements)
		copy(f[i].Wide, x.Wide)
	}
}

// Clear sets all numbers to 0.
func (f Fields) Clear() {
	for _, x := range f {
		clear(x.Counts)
		clear(x.Elements)
		clear(x.Wide)
	}
}

// Bytes returns the size of the numbers in memory, which is also the number of bytes that Write
// appends.
func (f Fields) Bytes() int64 {
	var n int64
	for _, x := range f {
		n += 8*int64(len(x.Counts)+len(x.Wide)) + scratch.ElementSize[tensor.Float]()*int64(len(x.Elements))
	}
	return n
}

// Write appends the numbers.
func (f Fields) Write(w *snapshot.Writer) {
	for _, x := range f {
		for _, n := range x.Counts {
			w.Int(n)
		}
		snapshot.WriteElements(w, x.Elements)
		snapshot.WriteElements(w, x.Wide)
	}
}

// Read sets the numbers from bytes that Write appended. It fails r if a count is outside of
// 0..most, where most is the number of tokens of the state.
func (f Fields) Read(r *snapshot.Reader, most int64) {
	for _, x := range f {
		for i := range x.Counts {
			if x.Counts[i] = r.Int(); x.Counts[i] < 0 || x.Counts[i] > most {
				r.Fail("a count is %d, of %d tokens", x.Counts[i], most)
			}
		}
		snapshot.ReadElements(r, x.Elements)
		snapshot.ReadElements(r, x.Wide)
	}
}
