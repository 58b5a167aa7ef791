package serve

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/strict"
)

// bodyTime bounds the time in which a client sends its body, besides a second a megabyte.
const bodyTime = time.Minute

// readBody reads a body of at most limit bytes. Server.bodies counts it until the request is answered. It returns an
// error if the body is longer, its end is missing, or it takes too long.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) (data []byte, err error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	writer := w.(*countedWriter) // ServeHTTP made it
	counted := &countedBody{body: http.MaxBytesReader(w, r.Body, limit), server: s}
	switch coding := strings.ToLower(r.Header.Get("Content-Encoding")); coding {
	case "", "identity":
	case "gzip", "x-gzip":
		counted.body = &unzipped{from: counted.body, limit: limit}
	default:
		w.Header().Set("Accept-Encoding", "gzip")
		return nil, &apiError{Status: http.StatusUnsupportedMediaType, Type: typeRequest, Code: "unsupported_encoding", Message: fmt.Sprintf("content-encoding: %.40q is neither gzip nor identity", coding)}
	}
	defer func() {
		if err != nil {
			s.bodies.Add(-counted.read)
			return
		}
		writer.body += counted.read
	}()
	longest := limit
	if r.ContentLength >= 0 {
		longest = r.ContentLength
		if s.bodies.Load()+longest > s.o.MaxBodies {
			return nil, s.refuseBody(longest)
		}
	}
	control := http.NewResponseController(w)
	// A writer without deadlines, as in tests, has no slow clients.
	_ = control.SetReadDeadline(time.Now().Add(bodyTime + time.Duration(longest>>20)*time.Second))
	writer.isBegun = true
	data, err = io.ReadAll(counted)
	var long *http.MaxBytesError
	var full *apiError
	switch {
	case errors.Is(err, errLongContent):
		return nil, &http.MaxBytesError{Limit: limit}
	case errors.As(err, &full) || errors.As(err, &long):
		return nil, err
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return nil, badBody(err.Error())
	}
	writer.isEnded = true
	if err != nil {
		return nil, &apiError{Status: http.StatusBadRequest, Type: typeRequest, Code: "body_cut", Message: "body: it ends early: " + err.Error()}
	}
	_ = control.SetReadDeadline(time.Time{})
	if err := writer.place.arrive(); err != nil {
		return nil, err
	}
	return data, nil
}

// refuseBody returns the error of n bytes that do not fit beside the bodies of other requests.
func (s *Server) refuseBody(n int64) error {
	return &apiError{Status: http.StatusTooManyRequests, Type: typeLimit, Code: "full", Retry: time.Second,
		Message: fmt.Sprintf("body: %d bytes are too many beside the bodies of other requests; all may have %d", n, s.o.MaxBodies)}
}

// unzipped reads a body of gzip.
type unzipped struct {
	from  io.Reader
	zip   *gzip.Reader // of from; nil: nothing is read
	limit int64        // of the bytes that are left
}

// Read reads the next part of the decompressed body. It returns an error if the body is longer than
// the limit.
func (u *unzipped) Read(p []byte) (int, error) {
	if u.zip == nil {
		var err error
		if u.zip, err = gzip.NewReader(u.from); err != nil {
			return 0, err
		}
	}
	n, err := u.zip.Read(p)
	if u.limit -= int64(n); u.limit < 0 {
		return 0, errLongContent
	}
	return n, err
}

// errLongContent is the error of a body of gzip whose content is too long.
var errLongContent = errors.New("its content is too long")

// countedBody counts a body in Server.bodies as it comes. A client that sends nothing takes no room of others.
type countedBody struct {
	body   io.Reader
	server *Server
	read   int64 // bytes
}

// Read reads the next part of the body. It returns an error if the bodies of all running requests
// together are too long.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.read += int64(n)
	if c.server.bodies.Add(int64(n)) > c.server.o.MaxBodies && n > 0 {
		return 0, c.server.refuseBody(c.read)
	}
	return n, err
}

const (
	maxDiscard = 32 << 20  // bytes of a refused body that are read at most
	shortBody  = 256 << 10 // bytes of a body that is read before the answer, so that the connection is kept
)

// refuse sends the error of a request, and reads the rest of its body: clients that write all of it
// before they read would not see the answer otherwise. A client that expects 100 Continue writes no
// body before its first part is read. count is called before the answer.
func (e *apiError) refuse(w *countedWriter, r *http.Request, count func()) {
	send := func() {
		count()
		e.write(w)
	}
	switch {
	case w.isEnded || r.ContentLength == 0 || !w.isBegun && r.Header.Get("Expect") != "":
		send()
	case r.ContentLength > 0 && r.ContentLength <= shortBody:
		discardBody(w, r)
		send()
	default: // the answer does not wait for a long body
		// Writers in tests have no connection.
		_ = w.control.EnableFullDuplex()
		w.Header().Set("Connection", "close")
		send()
		_ = w.control.Flush()
		discardBody(w, r)
	}
}

// discardBody reads the rest of a body.
func discardBody(w *countedWriter, r *http.Request) {
	// A writer without deadlines, as in tests, has no slow clients.
	_ = w.control.SetReadDeadline(time.Now().Add(bodyTime))
	// A body that ends early is refused as well.
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscard)
}

// readJSON reads a body into v, the pointer of a struct. An empty body is an object without
// fields. It returns an error for unknown fields that ask for something (with Options.Strict for all), wrong types,
// anything after the object and bytes that are not UTF-8.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := s.readBody(w, r, s.o.MaxBody)
	if err != nil {
		return err
	}
	return parseJSON(data, v, s.o.Strict)
}

// parseJSON is readJSON of a whole body.
func parseJSON(data []byte, v any, all bool) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil
	}
	if data[0] != '{' {
		return badBody("is no JSON object")
	}
	err := strict.Unmarshal(data, v)
	var bad *strict.Error
	if errors.As(err, &bad) && bad.IsUnknownField() && !all {
		if err = checkFields(data, reflect.TypeOf(v), "", false); err == nil {
			err = strict.UnmarshalKnown(data, v)
		}
	}
	var known *apiError
	switch {
	case errors.As(err, &known):
		return known
	case !errors.As(err, &bad):
		return err
	case bad.IsUnknownField():
		return unknownField(bad.Path)
	case bad.Path != "":
		return badFieldf(bad.Path, "%s", bad.Message)
	}
	return badBody(bad.Message)
}

// parseTexts returns the strings of a field that is a string or an array of strings. It returns
// an error if the field is missing, empty or neither.
func parseTexts(param string, data json.RawMessage) ([]string, error) {
	list, ok := stringsOf(data)
	switch {
	case len(data) == 0 || string(data) == "null":
		return nil, badFieldf(param, "is missing")
	case !ok:
		return nil, badFieldf(param, "is neither a string nor an array of strings")
	case len(list) == 0:
		return nil, badFieldf(param, "is an empty array")
	}
	return list, nil
}

// stringsOf returns the strings of data, and whether data is a string or an array of strings.
func stringsOf(data json.RawMessage) ([]string, bool) {
	var one *string
	if json.Unmarshal(data, &one) == nil && one != nil {
		return []string{*one}, true
	}
	var list []*string
	if json.Unmarshal(data, &list) != nil {
		return nil, false
	}
	texts := make([]string, len(list))
	for i, p := range list {
		if p == nil {
			return nil, false
		}
		texts[i] = *p
	}
	return texts, true
}
