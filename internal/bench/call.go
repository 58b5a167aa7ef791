package bench

import "github.com/farfield-ml/farfield/internal/par"

// NewCase returns a case of calls of any kind, with the current number of threads; l describes
// them. A call has flops useful operations and needs about need bytes. open prepares its data and
// returns the call.
func NewCase(l Line, flops, need float64, open func() (call func() error, err error)) *Case {
	l.Impl, l.Threads = impl, par.Threads()
	return &Case{Line: l, X: float64(l.N), FLOPs: flops, Need: need, open: func() (*work, error) {
		call, err := open()
		return &work{call: call}, err
	}}
}
