package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

var (
	all32    = append(assembly(), generic[float32]())
	all64    = []*Table[float64]{generic[float64]()}
	active32 = named(all32, cpu.ActiveSet())
)

// named returns the table of that instruction set, or else the pure Go one,
// which is last.
func named[T Float](all []*Table[T], name string) *Table[T] {
	for _, t := range all {
		if t.Name == name {
			return t
		}
	}
	return all[len(all)-1]
}

// Tables returns all that this machine can run, best first and the pure Go one
// last. The caller does not change it.
func Tables[T Float]() []*Table[T] {
	var t any = all32
	if _, ok := any(T(0)).(float64); ok {
		t = all64
	}
	return t.([]*Table[T])
}

// Active returns the routines in use on this machine for T.
func Active[T Float]() *Table[T] {
	var t any = active32
	if _, ok := any(T(0)).(float64); ok {
		t = all64[0]
	}
	return t.(*Table[T])
}
