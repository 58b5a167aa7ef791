package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the hosts, in a network that nothing else is in, and what each calls its
// end of the link.
const (
	hostDevice  = "farfield"
	hostNetwork = "10.77.0.0/30"
	firstHost   = "10.77.0.1"
	secondHost  = "10.77.0.2"
)

// hostPair is two hosts of one machine: network namespaces whose only way to each other
// is a link with delay, loss and an end. It needs root, the command ip and /dev/net/tun.
type hostPair struct {
	names      []string   // of the namespaces
	ends       []*os.File // of the link
	agent      string     // starts commands on the second host
	delay      time.Duration
	loss       float64
	cut        atomic.Bool
	passed     atomic.Int64
	lostFrames atomic.Int64
}

// hostPairs counts the pairs of this process, for distinct names.
var hostPairs atomic.Int64

// newHostPair makes two hosts. dir is a folder for a script. Packets take the time delay in
// each direction, and the share loss of them is lost. Where the system has no such hosts
// the error is errors.ErrUnsupported.
func newHostPair(dir string, delay time.Duration, loss float64) (*hostPair, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: network namespaces need root", errors.ErrUnsupported)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: the command ip (iproute2) is not installed", errors.ErrUnsupported)
	}
	p := &hostPair{delay: delay, loss: loss, agent: filepath.Join(dir, "agent")}
	pair := hostPairs.Add(1)
	for i, address := range []string{firstHost, secondHost} {
		name := fmt.Sprintf("farfield-%d-%d-%d", os.Getpid(), pair, i)
		if err := runIP("netns", "add", name); err != nil {
			p.Close()
			return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		p.names = append(p.names, name)
		end, err := openLink(name)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		p.ends = append(p.ends, end)
		for _, words := range []string{"link set dev lo up", "addr add " + address + "/30 dev " + hostDevice, "link set dev " + hostDevice + " up"} {
			if err := runIP(append([]string{"-n", name}, strings.Fields(words)...)...); err != nil {
				p.Close()
				return nil, err
			}
		}
		// A connection gives a cut link up after seconds, not after a quarter of an hour.
		if err := runIP("netns", "exec", name, "sh", "-c", "echo 3 >/proc/sys/net/ipv4/tcp_retries2"); err != nil {
			p.Close()
			return nil, err
		}
	}
	// mpirun calls it as it would rsh: host, then words for a shell.
	script := fmt.Sprintf("#!/bin/sh\nshift\nexec ip netns exec %s sh -c \"$*\"\n", p.names[1])
	if err := os.WriteFile(p.agent, []byte(script), 0o755); err != nil {
		p.Close()
		return nil, err
	}
	go p.carry(p.ends[0], p.ends[1], 1)
	go p.carry(p.ends[1], p.ends[0], 2)
	return p, nil
}

// runIP runs the command ip.
func runIP(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// openLink returns the machine's end of the device of a namespace, which has every
// packet that is sent there.
func openLink(namespace string) (*os.File, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer own.Close()
	f, err := openLinkIn(filepath.Join("/var/run/netns", namespace))
	// A thread that cannot come back stays with this goroutine.
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return f, err
}

func openLinkIn(namespace string) (*os.File, error) {
	ns, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("setns: %w", err)
	}
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	request, err := unix.NewIfreq(hostDevice)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// hostPacket is on its way.
type hostPacket struct {
	due  time.Time
	data []byte
}

// carry takes packets from one end to the other. The same seed loses the same numbers.
func (p *hostPair) carry(from, to *os.File, seed uint64) {
	// What finds no room is lost, as in a router.
	way := make(chan hostPacket, 1<<12)
	defer close(way)
	go func() {
		for x := range way {
			time.Sleep(time.Until(x.due))
			if !p.cut.Load() {
				_, _ = to.Write(x.data)
			}
		}
	}()
	r := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.passed.Add(1)
		if p.cut.Load() || r.Float64() < p.loss {
			p.lostFrames.Add(1)
			continue
		}
		select {
		case way <- hostPacket{time.Now().Add(p.delay), append([]byte(nil), buf[:n]...)}:
		default:
			p.lostFrames.Add(1)
		}
	}
}

// Command returns the words that start a job of two ranks of Open MPI, one on each host,
// to be followed by the program's.
func (p *hostPair) Command(mpirun string) []string {
	words := []string{"ip", "netns", "exec", p.names[0], mpirun, "--host", firstHost + ":1," + secondHost + ":1", "-n", "2"}
	for _, s := range []string{
		"plm_rsh_agent " + p.agent, "pml ob1", "btl tcp,self", "btl_tcp_if_include " + hostNetwork, "oob_tcp_if_include " + hostNetwork,
		"mpi_yield_when_idle 1", "oob_tcp_keepalive_time 2", "oob_tcp_keepalive_intvl 1", "oob_tcp_keepalive_probes 3",
	} {
		name, value, _ := strings.Cut(s, " ")
		words = append(words, "--mca", name, value)
	}
	return words
}

// Cut ends the link.
func (p *hostPair) Cut() { p.cut.Store(true) }

// Packets returns the number of packets that were sent, and that were lost of them.
func (p *hostPair) Packets() (sent, lost int64) { return p.passed.Load(), p.lostFrames.Load() }

// Close ends the hosts and the processes on them.
func (p *hostPair) Close() {
	for _, end := range p.ends {
		end.Close()
	}
	for _, name := range p.names {
		list, _ := exec.Command("ip", "netns", "pids", name).Output()
		for _, word := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(word); err == nil && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		_ = runIP("netns", "del", name)
	}
}

// The test program is a server or a client on one of the hosts if its environment says so.
func init() {
	switch os.Getenv("FARFIELD_TEST_HOST") {
	case "server":
		l, err := net.Listen("tcp", secondHost+":9000")
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
		c, err := net.DialTimeout("tcp", secondHost+":9000", 5*time.Second)
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
}

func TestLinkDelays(t *testing.T) {
	const delay = 30 * time.Millisecond
	p, err := newHostPair(t.TempDir(), delay, 0)
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
	if sent, lost := p.Packets(); sent == 0 || lost != 0 {
		t.Errorf("%d packets, %d lost", sent, lost)
	}
	p.Cut() // the last acknowledgement may still be on its way, and is lost then
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", p.names[0], "ip", "route", "get", secondHost).CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}
