package main

import (
	"fmt"
	"runtime"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// inspectCmd is the verb inspect.
type inspectCmd struct{}

func (c *inspectCmd) Run(e *env) error {
	_, err := fmt.Fprintf(e.stdout, "go        %s %s/%s\nkernels   %s\nthreads   %d\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Active[float32]().Name, par.Threads())
	return err
}
