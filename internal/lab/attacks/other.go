//go:build !linux

package attacks

import (
	"context"
	"errors"
	"io"
)

// Run returns an error: the attacks use signals, mounts and users of Linux.
func Run(context.Context, []string, io.Writer) error {
	return errors.New("the attacks run on Linux")
}
