package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
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

	"golang.org/x/time/rate"
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
		isListed := len(list) == 1 && s.isOwnOrigin(list[0])
		if !isListed && (len(list) > 1 || err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)) {
			return forbidden("origin: " + strconv.Quote(list[0]) + " is neither this server nor an --origin")
		}
		if isListed { // Sec-Fetch-Site says cross-site
			return nil
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

// isOwnOrigin reports whether pages of an origin may send requests.
func (s *Server) isOwnOrigin(origin string) bool {
	return slices.ContainsFunc(s.o.Origins, func(own string) bool { return strings.EqualFold(own, origin) })
}

// allowOrigin lets pages of Origins read the answer. It answers their question whether a request is allowed, which
// browsers ask before it, and reports whether that was all.
func (s *Server) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if len(s.o.Origins) > 0 {
		w.Header().Add("Vary", "Origin")
	}
	if origin == "" || !s.isOwnOrigin(origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		w.Header().Set("Access-Control-Allow-Headers", names)
	}
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
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

// shares counts the places that clients hold. A client may hold as many as are free: one that takes all it gets has
// half of them, and n such clients leave as many to the others as each of them has.
type shares struct {
	most int

	mu      sync.Mutex
	all     int
	clients map[string]int
}

// newShares returns shares of a number of places.
func newShares(most int) *shares { return &shares{most: most, clients: map[string]int{}} }

// take takes a place for client. It returns an error if there is none, or if the client holds its share.
func (s *shares) take(client, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.clients[client]
	if own < s.most-s.all {
		s.all++
		s.clients[client]++
		return nil
	}
	message := fmt.Sprintf("%d of at most %d requests %s", s.all, s.most, what)
	if own > 0 {
		message += fmt.Sprintf(", %d of this client, which may have as many as places are free", own)
	}
	return &apiError{Status: http.StatusTooManyRequests, Type: typeLimit, Code: "full", Retry: time.Second, Message: message}
}

// give gives a place of client back.
func (s *shares) give(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
}

// place is the place of a request: among those whose bodies arrive, and then among those that are answered.
type place struct {
	server *Server
	client string
	of     *shares // nil: none
}

// begin takes the first place of a request. It returns an error if its client has no share.
func (p *place) begin(hasBody bool) error {
	if hasBody {
		return p.move(p.server.arriving, "send their bodies")
	}
	return p.arrive()
}

// arrive takes the place of a request whose body is there. It returns an error if its client has no share.
func (p *place) arrive() error { return p.move(p.server.answering, "are answered") }

// move takes a place of another kind, and gives the one before back.
func (p *place) move(to *shares, what string) error {
	if p.of == to {
		return nil
	}
	err := to.take(p.client, what)
	p.end()
	if err == nil {
		p.of = to
	}
	return err
}

// end gives the place back.
func (p *place) end() {
	if p.of != nil {
		p.of.give(p.client)
		p.of = nil
	}
}

// maxClients bounds the clients whose rates are kept.
const maxClients = 4096

// rates limits requests of each client: a bucket of burst places that fills at a rate.
type rates struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

// newRates returns limits of perSecond requests a second; 0: no limit.
func newRates(perSecond float64, burst int) *rates {
	r := &rates{rate: rate.Limit(perSecond), burst: burst, clients: map[string]*rate.Limiter{}}
	if burst == 0 {
		r.burst = int(max(1, math.Ceil(perSecond)))
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
		b = rate.NewLimiter(r.rate, r.burst)
		r.clients[client] = b
	}
	place := b.ReserveN(now, 1)
	wait := place.DelayFrom(now)
	if wait > 0 {
		place.CancelAt(now)
	}
	return wait
}

// dropFull drops the clients whose buckets are full, and all if none is.
func (r *rates) dropFull(now time.Time) {
	for name, b := range r.clients {
		if b.TokensAt(now) >= float64(r.burst) {
			delete(r.clients, name)
		}
	}
	if len(r.clients) >= maxClients {
		clear(r.clients)
	}
}
