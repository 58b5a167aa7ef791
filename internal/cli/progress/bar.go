// Package progress shows progress on standard error: bars on a terminal, lines elsewhere.
package progress

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// NewBar returns a bar of all steps for a terminal. The bar disappears at its end.
func NewBar(w io.Writer, all int64, options ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions64(all, append([]progressbar.Option{
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
	}, options...)...)
}

// ClearBar removes a bar, which may be nil, so that something else can be printed.
func ClearBar(bar *progressbar.ProgressBar) {
	if bar != nil {
		_ = bar.Clear() // standard error may be closed
	}
}
