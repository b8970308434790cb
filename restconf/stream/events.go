package stream

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/xpath"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Media is the media type of server-sent events.
const Media = "text/event-stream"

// WriteTimeout bounds what is written at once.
const WriteTimeout = 10 * time.Second

const writeAtOnce = 32 << 10

// NotificationSpace is the namespace of notifications in XML (RFC 5277).
const NotificationSpace = "urn:ietf:params:xml:ns:netconf:notification:1.0"

// Writer writes server-sent events.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

// NewWriter answers a request for events. The timeouts of a connection are for requests that
// end; here each write has its own.
func NewWriter(w http.ResponseWriter) (*Writer, error) {
	o := &Writer{w: w, control: http.NewResponseController(w)}
	if err := o.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("begin a stream: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", Media)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return o, nil
}

// Comment writes a comment.
func (o *Writer) Comment() error {
	o.buf.WriteString(":\n\n")
	return o.flush()
}

// Send writes an event without an ID, of one line.
func (o *Writer) Send(message []byte) error {
	o.buf.WriteString("data: ")
	o.buf.Write(message)
	o.buf.WriteString("\n\n")
	return o.flush()
}

// flush sends the buffer, or fails if the client does not take it in time. It clears the
// deadline: a deadline that passes while nothing is written would end a stream of HTTP/2.
func (o *Writer) flush() error {
	defer o.buf.Reset()
	if err := o.control.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil {
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

// notifications writes events as notifications.
type notifications struct {
	*Writer
	schema *yang.Schema
	xml    bool
	filter *xpath.Condition // nil: all
	stop   time.Time        // later events are left out; zero: none
}

// Until implements Sink.
func (o *notifications) Until() time.Time { return o.stop }

// Events implements Sink.
func (o *notifications) Events(group []Event) error {
	for _, e := range group {
		if err := o.event(e); err != nil {
			return &UnwritableError{fmt.Errorf("write the event %s: %w", e.Name, err)}
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
func (o *notifications) event(e Event) error {
	var notification *yang.Data
	if o.xml || o.filter != nil {
		node := o.schema.Notification(e.Name)
		if node == nil {
			return errors.New("the schema has no such notification")
		}
		var err error
		if notification, err = yang.DecodeObject(e.Content, node); err != nil {
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
func (o *notifications) wants(e Event, notification *yang.Data) bool {
	if e.Bound {
		return true
	}
	if !o.stop.IsZero() && e.Time.After(o.stop) {
		return false
	}
	return o.filter == nil || o.filter.Holds(notification)
}

func (o *notifications) writeJSON(e Event) {
	o.buf.WriteString(`data: {"ietf-restconf:notification":{"eventTime":"`)
	o.writeTime(e.Time)
	o.buf.WriteString(`","` + e.Name + `":`)
	o.buf.Write(e.Content)
	o.buf.WriteString("}}\n\n")
}

// writeXML writes one line: line ends in values are written as references.
func (o *notifications) writeXML(e Event, notification *yang.Data) {
	o.buf.WriteString(`data: <notification xmlns="` + NotificationSpace + `"><eventTime>`)
	o.writeTime(e.Time)
	o.buf.WriteString("</eventTime>")
	yang.EncodeXML(&o.buf, []*yang.Data{notification})
	o.buf.WriteString("</notification>\n\n")
}

func (o *notifications) writeTime(at time.Time) {
	o.buf.Write(at.UTC().AppendFormat(o.buf.AvailableBuffer(), time.RFC3339Nano))
}
