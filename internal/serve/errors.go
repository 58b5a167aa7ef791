package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// apiError is the error of a request, in the words of OpenAI's error object.
type apiError struct {
	Status  int
	Type    string
	Message string
	Param   string        // field of the request; "": none
	Code    string        // "": none
	Retry   time.Duration // Retry-After; 0: none
}

// Error returns the message.
func (e *apiError) Error() string { return e.Message }

// Types of errors.
const (
	typeRequest = "invalid_request_error"
	typeKey     = "authentication_error"
	typeLimit   = "rate_limit_error"
	typeServer  = "server_error"
)

// badFieldf returns the error of a field of a request.
func badFieldf(param, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeRequest, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// refuseStopping returns the error of a server that is stopping.
func refuseStopping() *apiError {
	return &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "stopping", Message: "the server is stopping", Retry: time.Second}
}

// statusClosed is the status that logs and metrics show for a client that is gone.
const statusClosed = 499

// asAPIError returns err in the words of the protocol. stopping says that the server ends.
func asAPIError(err error, stopping bool) *apiError {
	var known *apiError
	var field *sessions.FieldError
	var text *inference.TextError
	var long *http.MaxBytesError
	request := func(status int, code string) *apiError {
		return &apiError{Status: status, Type: typeRequest, Code: code, Message: err.Error()}
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &field):
		e := request(http.StatusBadRequest, "")
		e.Param = field.Field
		return e
	case errors.As(err, &text):
		return badFieldf(fieldName("input", text.Text), "%v", text.Err)
	case errors.As(err, &long):
		e := request(http.StatusRequestEntityTooLarge, "body_too_large")
		e.Message = fmt.Sprintf("body: is longer than %d bytes", long.Limit)
		return e
	case errors.Is(err, sessions.ErrUnknown):
		return request(http.StatusNotFound, "session_not_found")
	case errors.Is(err, sessions.ErrBusy):
		return request(http.StatusConflict, "session_busy")
	case errors.Is(err, sessions.ErrDamaged):
		e := request(http.StatusGone, "session_damaged")
		e.Message = hidePaths(e.Message)
		return e
	case errors.Is(err, sessions.ErrForeign):
		return request(http.StatusConflict, "foreign_snapshot")
	case errors.Is(err, sessions.ErrTooLong):
		return request(http.StatusRequestEntityTooLarge, "too_many_tokens")
	case errors.Is(err, sessions.ErrFull):
		return &apiError{Status: http.StatusTooManyRequests, Type: typeLimit, Code: "full", Message: err.Error(), Retry: time.Second}
	case errors.Is(err, sessions.ErrClosed), stopping && errors.Is(err, context.Canceled):
		return refuseStopping()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &apiError{Status: statusClosed, Type: typeRequest, Code: "cancelled", Message: "the request was cancelled"}
	}
	return &apiError{Status: http.StatusInternalServerError, Type: typeServer, Message: hidePaths(err.Error())}
}

// errorBody is the JSON of an error.
type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// body returns the JSON of e.
func (e *apiError) body() errorBody {
	pointer := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return errorBody{errorObject{e.Message, e.Type, pointer(e.Param), pointer(e.Code)}}
}

// write sends e as the whole answer.
func (e *apiError) write(w http.ResponseWriter) {
	if e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, (e.Retry+time.Second-1)/time.Second))))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	status := e.Status
	if status == statusClosed {
		status = http.StatusServiceUnavailable
	}
	// The client may be gone, which no answer can say.
	_ = writeJSON(w, status, e.body())
}

// writeJSON sends v as the whole answer. It returns an error if v is no JSON or w fails.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	data, err := atomicfile.MarshalJSON(v)
	if err != nil {
		return err
	}
	return writeData(w, status, jsonType, append(data, '\n'))
}

// jsonType is the content type of JSON.
const jsonType = "application/json"

// writeData sends data as the whole answer. It returns an error if w fails.
func writeData(w http.ResponseWriter, status int, kind string, data []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, err := w.Write(data)
	return err
}

// writeLarge sends data, which changes no session, as the whole answer of status 200. It returns an error if the
// large answers that clients have not read have too many bytes. One alone is always sent.
func (s *Server) writeLarge(w http.ResponseWriter, kind string, data []byte) error {
	n := int64(len(data))
	defer s.answers.Add(-n)
	if all := s.answers.Add(n); all > s.o.MaxBodies && all > n {
		return &apiError{Status: http.StatusTooManyRequests, Type: typeLimit, Code: "full", Retry: time.Second,
			Message: fmt.Sprintf("answer: %d bytes are too many beside answers that other clients are reading; all may have %d", n, s.o.MaxBodies)}
	}
	return writeData(w, http.StatusOK, kind, data)
}

// writeLargeJSON is writeLarge of v. It returns an error if v is no JSON, too.
func (s *Server) writeLargeJSON(w http.ResponseWriter, v any) error {
	data, err := atomicfile.MarshalJSON(v)
	if err != nil {
		return err
	}
	return s.writeLarge(w, jsonType, append(data, '\n'))
}
