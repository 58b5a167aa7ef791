package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/sessions"
)

// ask sends a GET request with headers. The header Host is the request's host.
func (s *site) ask(path string, headers ...string) (int, string, http.Header) {
	s.t.Helper()
	r, err := http.NewRequest("GET", s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	a, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	var b strings.Builder
	if _, err := copyTo(&b, a.Body); err != nil {
		s.t.Fatal(err)
	}
	return a.StatusCode, b.String(), a.Header
}

func TestOtherSitesAreRefused(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Hosts = []string{"own.example"} })
	own := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		status  int
		headers []string
	}{
		{200, nil},
		{200, []string{"Host", "localhost"}},
		{200, []string{"Host", "LOCALHOST:9"}},
		{200, []string{"Host", "[::1]:9"}},
		{200, []string{"Host", "own.example:80"}},
		{403, []string{"Host", "evil.example"}},
		{403, []string{"Host", "localhost.evil.example"}},
		{403, []string{"Host", "127.0.0.1.evil.example:8181"}},
		{200, []string{"Origin", "http://" + own}},
		{403, []string{"Origin", "http://evil.example"}},
		{403, []string{"Origin", "null"}},
		{403, []string{"Origin", "http://localhost:1"}},
		{403, []string{"Origin", "http://" + own, "Origin", "http://evil.example"}},
		{200, []string{"Sec-Fetch-Site", "same-origin"}},
		{403, []string{"Sec-Fetch-Site", "cross-site"}},
		{403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}},
	} {
		status, text, header := s.ask("/v1/models", c.headers...)
		if status != c.status {
			t.Errorf("%v: status %d, want %d: %s", c.headers, status, c.status, text)
		}
		if header.Get("Access-Control-Allow-Origin") != "" || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%v: headers are %v", c.headers, header)
		}
	}
}

func TestKeysAreNeeded(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Keys = []string{"first-key", "second-key"} })
	for _, c := range []struct {
		status  int
		path    string
		headers []string
	}{
		{200, "/healthz", nil}, {200, "/readyz", nil},
		{401, "/v1/models", nil}, {401, "/metrics", nil}, {401, "/v1/sessions/x", nil},
		{200, "/v1/models", []string{"Authorization", "Bearer first-key"}},
		{200, "/metrics", []string{"Authorization", "bearer second-key"}},
		{401, "/v1/models", []string{"Authorization", "Bearer first-ke"}},
		{401, "/v1/models", []string{"Authorization", "Bearer "}},
		{401, "/v1/models", []string{"Authorization", "Basic first-key"}},
	} {
		status, text, header := s.ask(c.path, c.headers...)
		if status != c.status || (status == 401) != (header.Get("WWW-Authenticate") == "Bearer") || status == 401 && !strings.Contains(text, `"code":"invalid_api_key"`) {
			t.Errorf("%s %v: status %d, want %d: %s", c.path, c.headers, status, c.status, text)
		}
	}
}

func TestRatesAreOfEachKey(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := newSite(t, func(o *Options) {
		o.Keys, o.Rate, o.Burst = []string{"first-key", "second-key"}, 0.5, 2
		o.Clock = func() time.Time { return now }
	})
	ask := func(want int, key string) {
		t.Helper()
		status, text, header := s.ask("/v1/models", "Authorization", "Bearer "+key)
		if status != want || (status == 429) != (header.Get("Retry-After") != "") {
			t.Errorf("status %d, want %d: %s, %v", status, want, text, header)
		}
		if seconds, err := strconv.Atoi(header.Get("Retry-After")); status == 429 && (err != nil || seconds < 1 || seconds > 2) {
			t.Errorf("Retry-After is %q", header.Get("Retry-After"))
		}
	}
	ask(200, "first-key")
	ask(200, "first-key")
	ask(429, "first-key")
	ask(200, "second-key")
	now = now.Add(2 * time.Second)
	ask(200, "first-key")
	ask(429, "first-key")
}

func TestClientsOfRatesAreBounded(t *testing.T) {
	r := newRates(1, 1)
	now := time.Unix(1e9, 0)
	for i := range 3 * maxClients {
		if wait := r.take(strconv.Itoa(i), now); wait != 0 {
			t.Fatalf("client %d waits %v", i, wait)
		}
	}
	if len(r.clients) > maxClients {
		t.Errorf("%d clients are kept, at most %d", len(r.clients), maxClients)
	}
}

func TestStoppingServerIsNotReady(t *testing.T) {
	s := newSite(t, nil)
	if status, text, _ := s.ask("/readyz"); status != 200 {
		t.Error(text)
	}
	s.handler.Stop()
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/v1/models": 503, "/metrics": 503} {
		if status, text, _ := s.ask(path); status != want {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, text)
		}
	}
}

func TestKeysSeeTheirSessionsAlone(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Keys = []string{"first key", "second key"} })
	call := func(key, method, path, body string) (int, string) {
		r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(text)
	}
	_, text := call("first key", "POST", "/v1/sessions", `{"text":"a secret"}`)
	var own struct{ ID string }
	if err := json.Unmarshal([]byte(text), &own); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"POST", "/append", `{"text":"b"}`}, {"POST", "/generate", `{"max_tokens":1}`}, {"POST", "/fork", ""}, {"GET", "/export", ""}, {"DELETE", "", ""},
	} {
		if status, text := call("second key", c.method, "/v1/sessions/"+own.ID+c.path, c.body); status != 404 || !strings.Contains(text, "session_not_found") {
			t.Errorf("%s %s of another key: %d %s", c.method, c.path, status, text)
		}
	}
	if _, text := call("second key", "GET", "/v1/sessions", ""); strings.Contains(text, own.ID) {
		t.Errorf("another key lists %s", text)
	}
	if status, text := call("first key", "GET", "/v1/sessions/"+own.ID, ""); status != 200 {
		t.Errorf("its own key: %d %s", status, text)
	}
}

func TestDamagedSessionIsGone(t *testing.T) {
	e := asAPIError(fmt.Errorf("%w: its state is lost", sessions.ErrDamaged), false)
	if e.Status != http.StatusGone || e.Code != "session_damaged" {
		t.Errorf("status %d, code %s", e.Status, e.Code)
	}
}

// Clients that take all they get leave as many places to others as each of them has.
func TestClientsHaveShares(t *testing.T) {
	for _, c := range []struct {
		most, clients int
		want          []int // places of each client that takes all it gets, then of one that comes later
	}{
		{1, 1, []int{1, 0}}, {2, 1, []int{1, 1}}, {512, 1, []int{256, 128}}, {512, 3, []int{256, 128, 64, 32}},
	} {
		s := newShares(c.most)
		for i, want := range c.want {
			client := strconv.Itoa(i)
			for s.take(client, "run") == nil {
			}
			if got := s.clients[client]; got != want {
				t.Errorf("%d places: client %d has %d, want %d", c.most, i, got, want)
			}
		}
		for client, n := range s.clients {
			for range n {
				s.give(client)
			}
		}
		if s.all != 0 || len(s.clients) != 0 {
			t.Errorf("%d places: %d are held by %d clients that have given all back", c.most, s.all, len(s.clients))
		}
	}
}

// A key whose bodies do not arrive keeps neither other keys nor probes from their answers.
func TestSlowBodiesOfAKeyLeaveOthersTheirAnswers(t *testing.T) {
	const most = 64
	s := newSite(t, func(o *Options) { o.Keys, o.MaxRequests = []string{"first-key", "second-key"}, most })
	address := strings.TrimPrefix(s.URL, "http://")
	slow := func(headers string) net.Conn {
		t.Helper()
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first-key\r\nContent-Length: 1000\r\n%s\r\n", headers); err != nil {
			t.Fatal(err)
		}
		return c
	}
	arriving := func() int {
		s.handler.arriving.mu.Lock()
		defer s.handler.arriving.mu.Unlock()
		return s.handler.arriving.all
	}
	wait := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); arriving() != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bodies arrive, want %d", arriving(), want)
			}
		}
	}
	var held []net.Conn
	for range 2 * most {
		c := slow("")
		if _, err := io.WriteString(c, "{"); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	wait(most / 2)
	call := func(key, method, path, body string) int {
		t.Helper()
		r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		status, _ := s.do(r)
		return status
	}
	for _, c := range []struct {
		key, method, path, body string
	}{
		{"second-key", "GET", "/v1/models", ""}, {"second-key", "POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`},
		{"second-key", "POST", "/v1/embeddings", `{"input":"a"}`}, {"second-key", "GET", "/metrics", ""}, {"first-key", "GET", "/metrics", ""},
		{"first-key", "GET", "/v1/models", ""}, {"", "GET", "/healthz", ""}, {"", "GET", "/readyz", ""},
	} {
		if status := call(c.key, c.method, c.path, c.body); status != 200 {
			t.Errorf("%s %s of %q: status %d", c.method, c.path, c.key, status)
		}
	}
	refused := slow("Expect: 100-continue\r\n")
	a, err := http.ReadResponse(bufio.NewReader(refused), nil)
	if err != nil || a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
		t.Errorf("one slow body more: %v, %v, want 429", a, err)
	}
	for _, c := range held {
		c.Close()
	}
	wait(0)
	if status := call("first-key", "POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`); status != 200 {
		t.Errorf("after its slow bodies the key gets status %d", status)
	}
}

// Probes and metrics are answered where no other request is.
func TestProbesTakeNoPlaceAndHaveNoRate(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxRequests, o.Rate, o.Burst = 4, 0.001, 1 })
	for s.handler.answering.take("another", "run") == nil {
	}
	for _, client := range []string{"b", "c", "d", "e", "f"} {
		_ = s.handler.answering.take(client, "run")
	}
	s.need(429, "GET", "/v1/models", "", nil)
	for range 3 {
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, text := s.send("GET", path, ""); status != 200 {
				t.Errorf("%s: status %d: %s", path, status, text)
			}
		}
	}
	s.need(429, "GET", "/v1/models", "", nil)
}
