package neutron

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// Error is an answer that is not a success.
type Error struct {
	Status  int    // of HTTP
	Type    string // of Neutron, for example "OverQuota"; may be empty
	Message string // may be empty; others wrote it
	// RetryAfter is how long Neutron, or Keystone, asks not to be called; 0 if it does not ask.
	RetryAfter time.Duration
}

// Error returns one line, in which the message is quoted and short.
func (e *Error) Error() string {
	text := fmt.Sprintf("neutron answered %d", e.Status)
	if e.Type != "" {
		text += fmt.Sprintf(" %.60q", e.Type)
	}
	if e.Message != "" {
		text += fmt.Sprintf(": %.300q", e.Message)
	}
	return text
}

// errorOf turns an error of gophercloud, which contains headers and whole answers, into an Error.
func errorOf(err error) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return err
	}
	out := &Error{Status: answer.Actual, RetryAfter: retryAfter(answer.ResponseHeader.Get("Retry-After"))}
	var body struct {
		NeutronError json.RawMessage
	}
	var detail struct{ Type, Message string }
	if json.Unmarshal(answer.Body, &body) == nil && json.Unmarshal(body.NeutronError, &detail) == nil {
		out.Type, out.Message = detail.Type, detail.Message
	}
	return out
}

// retryAfter reads the header of that name: seconds, or a date. What is neither, or is over, asks
// for nothing.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}
