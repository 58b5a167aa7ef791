//go:build unix

package infile

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	return path
}

func TestPipesAreRefusedAtOnce(t *testing.T) {
	path := pipe(t)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": is a pipe; a regular file is needed") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("a device: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	if _, err := OpenStream(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "is a socket") {
		t.Errorf("a socket: %v", err)
	}
}

func TestStreamReadsAPipe(t *testing.T) {
	path := pipe(t)
	go func() { _ = os.WriteFile(path, []byte("through a pipe"), 0) }()
	s, err := OpenStream(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := io.ReadAll(s); err != nil || string(got) != "through a pipe" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWaitForAWriterEndsWithTheContext(t *testing.T) {
	path := pipe(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go cancel(why)
	if _, err := OpenStream(ctx, path); !errors.Is(err, why) {
		t.Errorf("no writer: %v", err)
	}
	// The abandoned open ends with a writer.
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		f.Close()
	}
}

func TestReadOfASilentPipeEndsWithTheContext(t *testing.T) {
	path := pipe(t)
	silent, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := OpenStream(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go cancel()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a silent pipe: %v", err)
	}
}
