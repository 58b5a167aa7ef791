package param

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Param is one named weight. Grad has the size of Data; backward passes add
// to it.
type Param struct {
	Name  string
	Shape []int
	Data  []tensor.Float
	Grad  []tensor.Float
	Decay bool // weight decay applies (matrices: yes; biases, gains: no)
}

// Set is an ordered list of weights with distinct names.
type Set struct {
	list  []*Param
	index map[string]*Param
}

// New adds a weight of zeros with the given shape and returns it. decay is its field Decay. It
// panics if the name is taken.
func (s *Set) New(name string, decay bool, shape ...int) *Param {
	n := 1
	for _, d := range shape {
		n *= d
	}
	p := &Param{Name: name, Shape: shape, Data: make([]tensor.Float, n), Grad: make([]tensor.Float, n), Decay: decay}
	s.Add(p)
	return p
}

// Add appends p. It panics if the name is taken.
func (s *Set) Add(p *Param) {
	if s.index == nil {
		s.index = map[string]*Param{}
	}
	if s.index[p.Name] != nil {
		panic("param: name taken: " + p.Name)
	}
	s.index[p.Name] = p
	s.list = append(s.list, p)
}

// AddPrefixed appends the weights of t under prefix+name; Data and Grad are shared.
func (s *Set) AddPrefixed(prefix string, t *Set) {
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
func (s *Set) All() []*Param {
	if s == nil {
		return nil
	}
	return s.list
}

// Get returns the weight with the given name. It returns an error if there is none.
func (s *Set) Get(name string) (*Param, error) {
	if s != nil {
		if p := s.index[name]; p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("parameter %q: not in this model", name)
}

// Size returns the number of elements of all weights.
func (s *Set) Size() int {
	n := 0
	for _, p := range s.All() {
		n += len(p.Data)
	}
	return n
}

// ZeroGrad sets every gradient to zero.
func (s *Set) ZeroGrad() {
	par.Run(len(s.All()), 1, float64(s.Size()), zeroGrads(s.All()))
}

// zeroGrads clears gradients.
type zeroGrads []*Param

func (f *zeroGrads) RunRange(i0, i1 int) {
	for _, p := range (*f)[i0:i1] {
		clear(p.Grad)
	}
}
