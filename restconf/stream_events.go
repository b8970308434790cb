package restconf

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/xpath"
	"github.com/coe-bridge/coe-bridge/yang"
)

// notificationSpace is the namespace of notifications in XML (RFC 5277).
const notificationSpace = "urn:ietf:params:xml:ns:netconf:notification:1.0"

// eventWriter writes server-sent events.
type eventWriter struct {
	schema  *yang.Schema
	xml     bool
	filter  *xpath.Condition // nil: all
	stop    time.Time        // later events are left out; zero: none
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

// begin answers the request. The timeouts of a connection are for requests that end; here
// each write has its own.
func (o *eventWriter) begin() error {
	if err := o.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	h := o.w.Header()
	h.Set("Content-Type", streamMedia)
	h.Set("Cache-Control", "no-store")
	o.w.WriteHeader(http.StatusOK)
	return nil
}

// until is the time that the client has set.
func (o *eventWriter) until() time.Time { return o.stop }

// comment writes a comment.
func (o *eventWriter) comment() error {
	o.buf.WriteString(":\n\n")
	return o.flush()
}

func (o *eventWriter) events(events []stream.Event) error {
	for _, e := range events {
		if err := o.event(e); err != nil {
			return err
		}
		if o.buf.Len() >= writeAtOnce {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	if o.buf.Len() == 0 {
		return nil
	}
	return o.flush()
}

// event writes a notification (RFC 8040 section 6.4). If it is left out, only its ID is
// sent, so that the client can go on after it.
func (o *eventWriter) event(e stream.Event) error {
	var notification *yang.Data
	if o.xml || o.filter != nil {
		var err error
		if notification, err = o.Parse(e); err != nil {
			return err
		}
	}
	if e.ID != "" {
		o.buf.WriteString("id: " + e.ID + "\n")
	}
	switch {
	case !o.wants(e, notification):
		if e.ID != "" {
			o.buf.WriteByte('\n')
		}
	case o.xml:
		o.writeXML(e, notification)
	default:
		o.writeJSON(e)
	}
	return nil
}

// wants reports whether an event is what the client asked for.
func (o *eventWriter) wants(e stream.Event, notification *yang.Data) bool {
	if e.Bound {
		return true
	}
	if !o.stop.IsZero() && e.Time.After(o.stop) {
		return false
	}
	return o.filter == nil || o.filter.Holds(notification)
}

// unwritableError is the error of an event that does not fit its name.
type unwritableError struct {
	name  string
	cause error
}

func (e *unwritableError) Error() string { return "write the event " + e.name + ": " + e.cause.Error() }
func (e *unwritableError) Unwrap() error { return e.cause }

func (o *eventWriter) Parse(e stream.Event) (*yang.Data, error) {
	node := o.schema.Notification(e.Name)
	if node == nil {
		return nil, &unwritableError{e.Name, errors.New("the schema has no such notification")}
	}
	notification, err := yang.DecodeObject(e.Content, node)
	if err != nil {
		return nil, &unwritableError{e.Name, err}
	}
	return notification, nil
}

func (o *eventWriter) writeJSON(e stream.Event) {
	o.buf.WriteString(`data: {"ietf-restconf:notification":{"eventTime":"`)
	o.writeTime(e.Time)
	o.buf.WriteString(`","` + e.Name + `":`)
	o.buf.Write(e.Content)
	o.buf.WriteString("}}\n\n")
}

// writeXML writes one line: line ends in values are written as references.
func (o *eventWriter) writeXML(e stream.Event, notification *yang.Data) {
	o.buf.WriteString(`data: <notification xmlns="` + notificationSpace + `"><eventTime>`)
	o.writeTime(e.Time)
	o.buf.WriteString("</eventTime>")
	yang.EncodeXML(&o.buf, []*yang.Data{notification})
	o.buf.WriteString("</notification>\n\n")
}

func (o *eventWriter) writeTime(at time.Time) {
	o.buf.Write(at.UTC().AppendFormat(o.buf.AvailableBuffer(), time.RFC3339Nano))
}

// flush sends the buffer, or fails if the client does not take it in time. It clears the
// deadline: a deadline that passes while nothing is written would end a stream of HTTP/2.
func (o *eventWriter) flush() error {
	defer o.buf.Reset()
	if err := o.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := o.w.Write(o.buf.Bytes()); err != nil {
		return err
	}
	if err := o.control.Flush(); err != nil {
		return err
	}
	return o.control.SetWriteDeadline(time.Time{})
}
