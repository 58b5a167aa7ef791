package program

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// CatchInterrupts returns a context that ends on Ctrl-C, SIGTERM and SIGHUP. A second Ctrl-C or
// SIGTERM ends the program at once. A second SIGHUP does not, since a closing terminal and its
// shell may both send one. Under nohup, SIGHUP is ignored.
func CatchInterrupts() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		cancel()
	}()
	return ctx
}
