// Package salremote is OpenDaylight's way to follow data (module sal-remote): an operation
// returns the name of a stream, a GET of the stream returns the location of its events, and
// each event is about one node of the data. The location is that of a websocket, which a
// ticket opens.
//
// A stream is defined by its name. So the server stores no streams, and each exists at every
// replica and after a restart. The events are made from the events of the streams of changes.
package salremote

import (
	_ "embed"
	"encoding/xml"
	"log/slog"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// space is the namespace of sal-remote.
const space = "urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote"

var (
	//go:embed sal-remote.yang
	module string
	//go:embed sal-remote-augment.yang
	augment string
)

// Server serves the operation and its streams.
type Server struct {
	schema  *yang.Schema
	changes stream.Source
	timeout time.Duration
	log     *slog.Logger
	tickets
}

// New returns a Server over the streams of changes, which are nil if there are none. If a stream
// cannot begin within the timeout, the request fails.
func New(schema *yang.Schema, changes stream.Source, timeout time.Duration, log *slog.Logger) *Server {
	return &Server{schema: schema, changes: changes, timeout: timeout, log: log}
}

// Operation is the operation that returns the name of a stream.
func (s *Server) Operation() discovery.Operation {
	return discovery.Operation{XMLName: xml.Name{Space: space, Local: rpc}, Streams: prefix, Modules: []*yang.Module{
		{Name: "sal-remote", Revision: "2014-01-14", Namespace: space, Text: module, Implemented: true},
		{Name: "sal-remote-augment", Revision: "2014-07-08", Namespace: "urn:sal:restconf:event:subscription", Text: augment, Implemented: true},
	}}
}

// output is the output of the operation.
type output struct {
	XMLName xml.Name `json:"-" xml:"urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote output"`
	Name    string   `json:"stream-name" xml:"stream-name"`
}

// Call answers the operation.
func (s *Server) Call(m wire.Media, body []byte) (any, error) {
	read := readJSONInput
	if m.IsXML() {
		read = readXMLInput
	}
	in, err := read(body)
	if err != nil {
		return nil, wire.Malformed("the body is not an input of " + rpc + ": " + err.Error())
	}
	asked, err := in.subscription(s.schema)
	return output{Name: asked.name()}, err
}
