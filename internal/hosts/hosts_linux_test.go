package hosts

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain lets the test program be a server or a client on one of the hosts.
func TestMain(m *testing.M) {
	switch os.Getenv("FARFIELD_TEST_HOST") {
	case "server":
		l, err := net.Listen("tcp", second+":9000")
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("listens\n")
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		_, _ = c.Write([]byte("here"))
		_, _ = c.Read(make([]byte, 1))
		os.Exit(0)
	case "client":
		start := time.Now()
		c, err := net.DialTimeout("tcp", second+":9000", 5*time.Second)
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		b := make([]byte, 4)
		if _, err := c.Read(b); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString(string(b) + " " + time.Since(start).String())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLinkDelays(t *testing.T) {
	const delay = 30 * time.Millisecond
	p, err := New(t.TempDir(), delay, 0)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	on := func(host int, as string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "ip", "netns", "exec", p.names[host], os.Args[0])
		c.Env = append(os.Environ(), "FARFIELD_TEST_HOST="+as)
		return c
	}
	server := on(1, "server")
	said, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	if n, err := said.Read(make([]byte, 8)); n == 0 {
		t.Fatal(err)
	}
	out, err := on(0, "client").Output()
	if err != nil || string(out[:5]) != "here " {
		t.Fatalf("%q, %v", out, err)
	}
	// There and back to connect, and half of that again at least.
	took, err := time.ParseDuration(string(out[5:]))
	if err != nil || took < 2*delay {
		t.Errorf("an answer takes %v, %v", took, err)
	}
	p.Cut()
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", p.names[0], "ip", "route", "get", second).CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if sent, lost := p.Packets(); sent == 0 || lost != 0 {
		t.Errorf("%d packets, %d lost", sent, lost)
	}
}
