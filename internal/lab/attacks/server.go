//go:build linux

package attacks

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// A server stands for every host that data sets come from: a proxy on loopback which
// answers in their place, slowly enough to be interrupted.
type server struct {
	URL       string
	authority string // file with the certificate that its own are signed by
	listener  net.Listener
	inner     *queue
}

// startServer starts a server, whose certificate goes to a file.
func startServer(authority string) (*server, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attacks"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	certificate := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: hello.ServerName}, DNSNames: []string{hello.ServerName},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
	}
	s := &server{authority: authority, inner: &queue{conns: make(chan net.Conn), closed: make(chan struct{})}}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.URL = "http://" + s.listener.Addr().String()
	files := served()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(slowWriter{w}, r, "", time.Time{}, bytes.NewReader(data))
	})
	// Clients that are killed are no news.
	quiet := log.New(io.Discard, "", 0)
	go (&http.Server{Handler: answer, ErrorLog: quiet}).Serve(s.inner)
	config := &tls.Config{GetCertificate: certificate}
	proxy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			answer(w, r)
			return
		}
		// The client says nothing before the answer, so that nothing of it is buffered.
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			conn.Close()
			return
		}
		select {
		case s.inner.conns <- tls.Server(conn, config):
		case <-s.inner.closed:
			conn.Close()
		}
	})
	go (&http.Server{Handler: proxy, ErrorLog: quiet}).Serve(s.listener)
	return s, nil
}

func (s *server) Close() {
	s.listener.Close()
	s.inner.Close()
}

// slowWriter writes in small pieces with pauses.
type slowWriter struct{ http.ResponseWriter }

func (s slowWriter) Write(p []byte) (n int, err error) {
	const piece, pause = 8 << 10, 3 * time.Millisecond
	for n < len(p) && err == nil {
		var k int
		k, err = s.ResponseWriter.Write(p[n:min(n+piece, len(p))])
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		n += k
		time.Sleep(pause)
	}
	return n, err
}

// ReadFrom keeps the copy of http.ServeContent to Write.
func (s slowWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{s}, r)
}

// A queue is a listener of the connections that it is given.
type queue struct {
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, errors.ErrUnsupported
	}
}

func (q *queue) Close() error   { q.closing.Do(func() { close(q.closed) }); return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }
