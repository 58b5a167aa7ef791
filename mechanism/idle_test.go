package mechanism

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
)

// piecesOfMemory collects the memory of numbers that a value reaches: slices to their
// capacity, by the path of fields to them. Variables of closures are not reached.
type piecesOfMemory struct {
	seen   map[visit]bool
	pieces []memoryPiece
}

type visit struct {
	at unsafe.Pointer
	of reflect.Type
}

type memoryPiece struct {
	path  string
	start uintptr
	size  uintptr
}

func reachedFrom(x any) []memoryPiece {
	m := piecesOfMemory{seen: map[visit]bool{}}
	m.add(reflect.ValueOf(x), "")
	return m.pieces
}

func (m *piecesOfMemory) add(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() || m.seen[visit{v.UnsafePointer(), v.Type()}] {
			return
		}
		m.seen[visit{v.UnsafePointer(), v.Type()}] = true
	}
	switch v.Kind() {
	case reflect.Pointer:
		m.add(v.Elem(), path)
	case reflect.Interface:
		if !v.IsNil() {
			m.add(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			m.add(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Array:
		for i := range v.Len() {
			m.add(v.Index(i), path)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			m.add(it.Value(), path)
		}
	case reflect.Slice:
		of := v.Type().Elem()
		if k := of.Kind(); k == reflect.Bool || k >= reflect.Int && k <= reflect.Complex128 {
			m.pieces = append(m.pieces, memoryPiece{path, uintptr(v.UnsafePointer()), uintptr(v.Cap()) * of.Size()})
			return
		}
		for v, i := v.Slice(0, v.Cap()), 0; i < v.Len(); i++ {
			m.add(v.Index(i), path)
		}
	}
}

// shared returns the pieces of a that overlap one of b.
func shared(a, b []memoryPiece) []memoryPiece {
	return slices.DeleteFunc(slices.Clone(a), func(x memoryPiece) bool {
		return !slices.ContainsFunc(b, func(y memoryPiece) bool { return x.start < y.start+y.size && y.start < x.start+x.size })
	})
}

// An idle state keeps neither what it was called with nor scratch memory, which two states
// that work in turns would share.
func TestIdleStatesKeepNothingOfTheirCalls(t *testing.T) {
	defer par.SetThreads(0)
	par.SetThreads(1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // scratch memory is lent from a pool of each processor
	met := kinds{}
	states := 0
	for _, s := range subjects() {
		if m, _ := build(t, s, 1); m.Traits().Causal && met.isNew(s) {
			for _, sh := range streams(s) {
				letGo(t, s, sh)
				states++
			}
		}
	}
	t.Logf("%d kinds of states", states)
}

func letGo(t *testing.T, s subject, sh shape) {
	oc, _ := sh.call(20)
	m, _ := build(t, s, sh.h)
	c := callIn(oc)
	o := output(c)
	fresh := newState(t, m)
	own := append(reachedFrom(m), reachedFrom(fresh)...) // such as weights of features
	defer runtime.KeepAlive(fresh)
	for _, u := range []struct {
		name string
		use  func(attention.State) error
	}{
		{"a token", func(st attention.State) error { return st.Step(o.Tokens(0, 1), piece(c, 0, 1)) }},
		{"tokens", func(st attention.State) error {
			for i := range 10 {
				if err := st.Step(o.Tokens(i, i+1), piece(c, i, i+1)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"a segment", func(st attention.State) error { return st.Step(o, c) }},
		{"a segment and a token", func(st attention.State) error {
			if err := st.Step(o.Tokens(0, sh.n-1), piece(c, 0, sh.n-1)); err != nil {
				return err
			}
			return st.Step(o.Tokens(sh.n-1, sh.n), piece(c, sh.n-1, sh.n))
		}},
		{"absorbed tokens and a query", func(st attention.State) error {
			if err := st.Absorb(c); err != nil {
				return err
			}
			ask := &attention.Call{Q: c.Q.Tokens(sh.n-1, sh.n), K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0), Rope: c.Rope.Slice(sh.n - 1)}
			return st.Read(o.Tokens(0, 1), ask)
		}},
	} {
		var states [2]attention.State
		var reached [2][]memoryPiece
		for i := range states {
			st := newState(t, m)
			if err := u.use(st); err != nil {
				t.Fatal(err)
			}
			if u.name == "a segment" {
				other := newState(t, m)
				if err := other.Absorb(piece(c, 0, 6)); err != nil {
					t.Fatal(err)
				}
				if err := st.Merge(other); err != nil {
					t.Fatal(err)
				}
			}
			states[i], reached[i] = st, reachedFrom(st)
		}
		// Addresses are compared: nothing may be collected, and its memory taken again, before.
		defer runtime.KeepAlive(states)
		for what, pieces := range map[string][]memoryPiece{"another state": reached[1], "its call": append(reachedFrom(c), reachedFrom(o)...)} {
			for _, x := range shared(reached[0], pieces) {
				if len(shared([]memoryPiece{x}, own)) == 0 {
					t.Errorf("%s, %s: after %s %d bytes are shared with %s", s.label, sh.name, u.name, x.size, fmt.Sprint(what, ": ", x.path))
				}
			}
		}
	}
}
