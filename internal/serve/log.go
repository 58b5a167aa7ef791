package serve

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// report writes the line of an answered request to Options.Log, if it failed, was slow or all are asked for. path is
// the pattern of its route, so that no line has an id or a text.
func (s *Server) report(w *countedWriter, r *http.Request, path string, begin time.Time, err error) {
	if s.o.Log == nil {
		return
	}
	all := s.o.Clock().Sub(begin)
	first := all
	if !w.first.IsZero() {
		first = w.first.Sub(begin)
	}
	level, message := slog.LevelInfo, "request"
	switch {
	case w.status >= http.StatusInternalServerError && (w.status != http.StatusServiceUnavailable || !s.stopping.Load()): // a stop is no failure
		level, message = slog.LevelError, "request failed"
	case first >= s.o.Slow:
		level, message = slog.LevelWarn, "slow request"
	case !s.o.LogAll:
		return
	}
	list := []slog.Attr{slog.String("method", r.Method), slog.String("path", path), slog.Int("status", w.status), slog.Int64("bytes", w.written),
		slog.Float64("seconds", all.Seconds()), slog.Float64("first_byte_seconds", first.Seconds()), slog.String("client", r.RemoteAddr)}
	if err != nil {
		list = append(list, slog.String("error", err.Error()))
	}
	s.o.Log.LogAttrs(r.Context(), level, message, list...)
}

// filePath is a path with two names at least, or an absolute one.
var filePath = regexp.MustCompile(`(?:[A-Za-z]:)?[^\s:;,"'()=]*[/\\][^\s:;,"'()]+`)

// hidePaths returns the words of an error with the last name of each path alone: answers do not say where files lie.
func hidePaths(text string) string {
	return filePath.ReplaceAllStringFunc(text, func(path string) string { return filepath.Base(strings.ReplaceAll(path, `\`, "/")) })
}
