package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// checkOrigin returns an error if the Host header is a name of another site, as after DNS
// rebinding, or if a page of another origin sends the request.
func (s *Server) checkOrigin(r *http.Request) error {
	forbidden := func(message string) error {
		return &apiError{Status: http.StatusForbidden, Type: typeRequest, Code: "forbidden", Message: message}
	}
	if !s.isOwnHost(r.Host) {
		return forbidden("host: " + strconv.Quote(r.Host) + " is neither an address, nor localhost, nor a name of --host")
	}
	if list := r.Header.Values("Origin"); len(list) > 0 {
		u, err := url.Parse(list[0])
		if len(list) > 1 || err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return forbidden("origin: " + strconv.Quote(list[0]) + " is not this server")
		}
	}
	// A link from another site may open the page, nothing else.
	site := r.Header.Get("Sec-Fetch-Site")
	isLink := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.URL.Path == "/"
	if (site == "cross-site" || site == "same-site") && !isLink {
		return forbidden("origin: a page of another origin sends this request")
	}
	return nil
}

// isOwnHost reports whether a Host header is an address, localhost or a name of Hosts. A page
// of another site has its own name as Host, even if that name points here.
func (s *Server) isOwnHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	return slices.ContainsFunc(s.o.Hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// hashKeys returns the hashes of keys, which have one length.
func hashKeys(keys []string) [][32]byte {
	list := make([][32]byte, len(keys))
	for i, key := range keys {
		list[i] = sha256.Sum256([]byte(key))
	}
	return list
}

// checkKey returns the name of the client under which its requests are counted, and the owner of
// its sessions; "" where no keys are needed. It returns an error if keys are needed and the request
// has none of them. The time does not depend on the key.
func (s *Server) checkKey(r *http.Request) (client, owner string, err error) {
	if len(s.keys) == 0 {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return host, "", nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	at := -1
	for i := range s.keys {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(s.keys[i][:], sum[:]), i, at)
	}
	if at < 0 || !strings.EqualFold(scheme, "Bearer") {
		return "", "", &apiError{Status: http.StatusUnauthorized, Type: typeKey, Code: "invalid_api_key", Message: "authorization: needs Bearer and a key of this server"}
	}
	return "key " + strconv.Itoa(at), hex.EncodeToString(sum[:]), nil
}

// maxClients bounds the clients whose rates are kept.
const maxClients = 4096

// rates limits requests of each client: a bucket of burst places that fills at a rate.
type rates struct {
	rate, burst float64

	mu      sync.Mutex
	clients map[string]*bucket
}

// bucket holds the requests that a client may send at once.
type bucket struct {
	level float64
	time  time.Time // of the level
}

// newRates returns limits of rate requests a second; 0: no limit.
func newRates(rate float64, burst int) *rates {
	r := &rates{rate: rate, burst: float64(burst), clients: map[string]*bucket{}}
	if burst == 0 {
		r.burst = max(1, math.Ceil(rate))
	}
	return r
}

// take takes a place of client. It returns 0, or the time after which there is one.
func (r *rates) take(client string, now time.Time) time.Duration {
	if r.rate == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.clients[client]
	if b == nil {
		if len(r.clients) >= maxClients {
			r.dropFull(now)
		}
		b = &bucket{r.burst, now}
		r.clients[client] = b
	}
	b.level = min(r.burst, b.level+r.rate*now.Sub(b.time).Seconds())
	b.time = now
	if b.level < 1 {
		return time.Duration(math.Ceil((1 - b.level) / r.rate * float64(time.Second)))
	}
	b.level--
	return 0
}

// dropFull drops the clients whose buckets are full, and all if none is.
func (r *rates) dropFull(now time.Time) {
	for name, b := range r.clients {
		if b.level+r.rate*now.Sub(b.time).Seconds() >= r.burst {
			delete(r.clients, name)
		}
	}
	if len(r.clients) >= maxClients {
		clear(r.clients)
	}
}
