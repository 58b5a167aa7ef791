package hosts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the hosts, in a network that nothing else is in, and what each calls its
// end of the link.
const (
	device  = "farfield"
	network = "10.77.0.0/30"
	first   = "10.77.0.1"
	second  = "10.77.0.2"
)

// Pair is two hosts.
type Pair struct {
	names      []string   // of the namespaces
	ends       []*os.File // of the link
	agent      string     // starts commands on the second host
	delay      time.Duration
	loss       float64
	cut        atomic.Bool
	passed     atomic.Int64
	lostFrames atomic.Int64
}

// pairs counts the pairs of this process, for distinct names.
var pairs atomic.Int64

// New makes two hosts. dir is a folder for a script. Packets take the time delay in
// each direction, and the share loss of them is lost. Where the system has no such hosts
// the error is errors.ErrUnsupported.
func New(dir string, delay time.Duration, loss float64) (*Pair, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: network namespaces need root", errors.ErrUnsupported)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: the command ip (iproute2) is not installed", errors.ErrUnsupported)
	}
	p := &Pair{delay: delay, loss: loss, agent: filepath.Join(dir, "agent")}
	pair := pairs.Add(1)
	for i, address := range []string{first, second} {
		name := fmt.Sprintf("farfield-%d-%d-%d", os.Getpid(), pair, i)
		if err := ip("netns", "add", name); err != nil {
			p.Close()
			return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		p.names = append(p.names, name)
		end, err := open(name)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		p.ends = append(p.ends, end)
		for _, words := range []string{"link set dev lo up", "addr add " + address + "/30 dev " + device, "link set dev " + device + " up"} {
			if err := ip(append([]string{"-n", name}, strings.Fields(words)...)...); err != nil {
				p.Close()
				return nil, err
			}
		}
		// A connection gives a cut link up after seconds, not after a quarter of an hour.
		if err := ip("netns", "exec", name, "sh", "-c", "echo 3 >/proc/sys/net/ipv4/tcp_retries2"); err != nil {
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

// ip runs the command ip.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// open returns the machine's end of the device of a namespace, which has every
// packet that is sent there.
func open(namespace string) (*os.File, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer own.Close()
	f, err := openIn(filepath.Join("/var/run/netns", namespace))
	// A thread that cannot come back stays with this goroutine.
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return f, err
}

func openIn(namespace string) (*os.File, error) {
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
	request, err := unix.NewIfreq(device)
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

// packet is on its way.
type packet struct {
	due  time.Time
	data []byte
}

// carry takes packets from one end to the other. The same seed loses the same numbers.
func (p *Pair) carry(from, to *os.File, seed uint64) {
	// What finds no room is lost, as in a router.
	way := make(chan packet, 1<<12)
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
		case way <- packet{time.Now().Add(p.delay), append([]byte(nil), buf[:n]...)}:
		default:
			p.lostFrames.Add(1)
		}
	}
}

// Command returns the words that start a job of two ranks of Open MPI, one on each host,
// to be followed by the program's.
func (p *Pair) Command(mpirun string) []string {
	words := []string{"ip", "netns", "exec", p.names[0], mpirun, "--host", first + ":1," + second + ":1", "-n", "2"}
	for _, s := range []string{
		"plm_rsh_agent " + p.agent, "pml ob1", "btl tcp,self", "btl_tcp_if_include " + network, "oob_tcp_if_include " + network,
		"mpi_yield_when_idle 1", "oob_tcp_keepalive_time 2", "oob_tcp_keepalive_intvl 1", "oob_tcp_keepalive_probes 3",
	} {
		name, value, _ := strings.Cut(s, " ")
		words = append(words, "--mca", name, value)
	}
	return words
}

// Cut ends the link.
func (p *Pair) Cut() { p.cut.Store(true) }

// Packets returns the number of packets that were sent, and that were lost of them.
func (p *Pair) Packets() (sent, lost int64) { return p.passed.Load(), p.lostFrames.Load() }

// Close ends the hosts and the processes on them.
func (p *Pair) Close() {
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
		_ = ip("netns", "del", name)
	}
}
