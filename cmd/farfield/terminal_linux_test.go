package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
)

// openTerminal returns the ends of a pseudo-terminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	return master, terminal
}

func TestTerminalsGetNoControlCharacters(t *testing.T) {
	master, terminal := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 40}); err != nil {
		t.Fatal(err)
	}
	if width := progress.TerminalWidth(display.NewScreen(terminal)); width != 40 {
		t.Errorf("the screen has %d columns, want 40", width)
	}
	shown := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // ends with EIO
		shown <- string(b)
	}()
	var errs strings.Builder
	args := strings.Fields("attend --mechanism fastmax --causal --synthetic 50,8,1 -") // bytes of numbers
	status := farfield().RunVerb(args, &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: terminal, Stderr: &errs})
	terminal.Close()
	text := <-shown
	if status != 0 || !strings.ContainsRune(text, unicode.ReplacementChar) {
		t.Errorf("status %d, %s, %q", status, errs.String(), text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\r\n\t", r) }); i >= 0 {
		t.Errorf("%q is printed as it is", text[i:i+1])
	}
}
