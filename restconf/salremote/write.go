package salremote

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// maxMessage is the size at which a notification of many events is divided.
const maxMessage = 256 << 10

// dataMessages writes events as OpenDaylight's data-changed-notification, each message
// on one line.
func dataMessages(events []dataEvent, inJSON bool, now time.Time) [][]byte {
	var all [][]byte
	open, write, end := beginXML, writeXMLEvent, "</data-changed-notification></notification>"
	if inJSON {
		open, write, end = beginJSON, writeJSONEvent, "]}}}"
	}
	var buf bytes.Buffer
	for i, e := range events {
		if buf.Len() == 0 {
			open(&buf, now.UTC().Format(time.RFC3339Nano))
		} else if inJSON {
			buf.WriteByte(',')
		}
		write(&buf, e)
		if i == len(events)-1 || buf.Len() >= maxMessage {
			buf.WriteString(end)
			all = append(all, bytes.Clone(buf.Bytes()))
			buf.Reset()
		}
	}
	return all
}

func beginXML(buf *bytes.Buffer, now string) {
	buf.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="no"?><notification xmlns="` + stream.NotificationSpace + `"><eventTime>` + now +
		`</eventTime><data-changed-notification xmlns="` + space + `">`)
}

func writeXMLEvent(buf *bytes.Buffer, e dataEvent) {
	buf.WriteString("<data-change-event><path")
	declared := map[*yang.Module]bool{}
	for _, s := range e.at {
		if module := s.Node.Module; !declared[module] {
			declared[module] = true
			buf.WriteString(" xmlns:" + module.Name + `="`)
			_ = xml.EscapeText(buf, []byte(module.Namespace)) // writing to a buffer doesn't fail
			buf.WriteByte('"')
		}
	}
	buf.WriteByte('>')
	_ = xml.EscapeText(buf, []byte(eventPath(e.at)))
	buf.WriteString("</path><operation>" + e.operation + "</operation>")
	if e.after != nil {
		buf.WriteString("<data>")
		yang.EncodeXML(buf, []*yang.Data{e.after})
		buf.WriteString("</data>")
	}
	buf.WriteString("</data-change-event>")
}

// beginJSON begins the JSON that OpenDaylight makes of its XML.
func beginJSON(buf *bytes.Buffer, now string) {
	buf.WriteString(`{"notification":{"xmlns":"` + stream.NotificationSpace + `","eventTime":"` + now +
		`","data-changed-notification":{"xmlns":"` + space + `","data-change-event":[`)
}

// writeJSONEvent writes the data in the form of a GET in draft-02.
func writeJSONEvent(buf *bytes.Buffer, e dataEvent) {
	path, _ := json.Marshal(eventPath(e.at)) // a string always encodes
	buf.WriteString(`{"path":` + string(path) + `,"operation":"` + e.operation + `"`)
	if e.after != nil {
		buf.WriteString(`,"data":`)
		yang.EncodeJSON(buf, []*yang.Data{e.after}, yang.Draft02)
	}
	buf.WriteByte('}')
}

// eventPath returns an instance-identifier in which every name has its module, as in OpenDaylight's
// events.
func eventPath(t tree.Target) string {
	var b strings.Builder
	for _, s := range t {
		name := s.Node.Module.Name + ":"
		b.WriteString("/" + name + s.Node.Name)
		for i, key := range s.Keys {
			quote := "'"
			if strings.Contains(key, quote) {
				quote = `"`
			}
			of := "."
			if s.Node.Kind == yang.List {
				of = s.Node.Keys[i].Module.Name + ":" + s.Node.Keys[i].Name
			}
			b.WriteString("[" + of + "=" + quote + key + quote + "]")
		}
	}
	return b.String()
}
