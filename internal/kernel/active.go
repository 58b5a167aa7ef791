package kernel

var (
	active32 = generic[float32]()
	active64 = generic[float64]()
)

// Active returns the routines in use on this machine for T.
func Active[T Float]() *Table[T] {
	var t any = active32
	if _, ok := any(T(0)).(float64); ok {
		t = active64
	}
	return t.(*Table[T])
}
