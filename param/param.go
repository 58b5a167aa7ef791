package param

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Param is one named weight. Grad has the size of Data; backward passes add
// to it.
type Param[T tensor.Float] struct {
	Name  string
	Shape []int
	Data  []T
	Grad  []T
	Decay bool // weight decay applies (matrices: yes; biases, gains: no)
}

// Set is an ordered list of weights with distinct names.
type Set[T tensor.Float] struct {
	list  []*Param[T]
	index map[string]*Param[T]
}

// New adds a zeroed weight of the given shape and returns it. It panics if the
// name is taken: names are the program's, not data.
func (s *Set[T]) New(name string, decay bool, shape ...int) *Param[T] {
	n := 1
	for _, d := range shape {
		n *= d
	}
	p := &Param[T]{Name: name, Shape: shape, Data: make([]T, n), Grad: make([]T, n), Decay: decay}
	s.Add(p)
	return p
}

// Add appends p. It panics if the name is taken.
func (s *Set[T]) Add(p *Param[T]) {
	if s.index == nil {
		s.index = map[string]*Param[T]{}
	}
	if s.index[p.Name] != nil {
		panic("param: name taken: " + p.Name)
	}
	s.index[p.Name] = p
	s.list = append(s.list, p)
}

// AddPrefixed appends the weights of t under prefix+name; Data and Grad are shared.
func (s *Set[T]) AddPrefixed(prefix string, t *Set[T]) {
	if t == nil {
		return
	}
	for _, p := range t.list {
		q := *p
		q.Name = prefix + p.Name
		s.Add(&q)
	}
}

// All returns the weights in order.
func (s *Set[T]) All() []*Param[T] {
	if s == nil {
		return nil
	}
	return s.list
}

// Get returns the weight of that name. It returns an error if there is none.
func (s *Set[T]) Get(name string) (*Param[T], error) {
	if s != nil {
		if p := s.index[name]; p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("parameter %q: not in this model", name)
}

// Size returns the number of elements of all weights.
func (s *Set[T]) Size() int {
	n := 0
	for _, p := range s.All() {
		n += len(p.Data)
	}
	return n
}

// ZeroGrad sets every gradient to zero.
func (s *Set[T]) ZeroGrad() {
	par.Run(len(s.All()), 1, float64(s.Size()), zeroGrads[T](s.All()))
}

// zeroGrads clears gradients.
type zeroGrads[T tensor.Float] []*Param[T]

func (f *zeroGrads[T]) RunRange(i0, i1 int) {
	for _, p := range (*f)[i0:i1] {
		clear(p.Grad)
	}
}
