package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

var (
	all32    = append(assemblyTables(), genericTable[float32]())
	all64    = []*Table[float64]{genericTable[float64]()}
	active32 = findTable(all32, cpu.ActiveSet())
)

// findTable returns the table of an instruction set, or the pure Go table, which is last.
func findTable[T Float](all []*Table[T], name string) *Table[T] {
	for _, t := range all {
		if t.Name == name {
			return t
		}
	}
	return all[len(all)-1]
}

// Tables returns all tables that this machine supports, best first and pure Go last. The caller must
// not change it.
func Tables[T Float]() []*Table[T] {
	var t any = all32
	if _, ok := any(T(0)).(float64); ok {
		t = all64
	}
	return t.([]*Table[T])
}

// Active returns the table in use for T.
func Active[T Float]() *Table[T] {
	var t any = active32
	if _, ok := any(T(0)).(float64); ok {
		t = all64[0]
	}
	return t.(*Table[T])
}
