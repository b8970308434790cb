package salremote

import (
	"math"
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// rpc is the operation.
const rpc = "create-data-change-event-subscription"

// prefix is the prefix of the names of streams.
const prefix = "data-change-event-subscription/"

// scope is the depth below the followed node for which events are sent.
type scope string

// The scopes of OpenDaylight's documentation: the node itself, with its children, and with
// all nodes below it.
const (
	scopeBase    scope = "BASE"
	scopeOne     scope = "ONE"
	scopeSubtree scope = "SUBTREE"
)

// reach returns the depth of a scope below the followed node.
var reach = map[scope]int{scopeBase: 0, scopeOne: 1, scopeSubtree: math.MaxInt}

// The datastores of the followed data.
const (
	configuration = "CONFIGURATION"
	operational   = "OPERATIONAL"
)

// The names of a subscription's fields, in requests and in the names of streams.
const (
	datastoreField = "datastore"
	scopeField     = "scope"
	outputField    = "notification-output-type"
	outputJSON     = "JSON"
)

// subscription is the content of a stream's name.
type subscription struct {
	at    tree.Target // a container, an entry of a list, or a leaf
	store string
	scope scope
	json  bool
}

// name returns the percent-encoded name of the stream, which follows the common path of all streams.
func (s subscription) name() string {
	name := prefix + strings.TrimPrefix(wire.Draft02.URL(s.at), "/") +
		"/" + datastoreField + "=" + s.store + "/" + scopeField + "=" + string(s.scope)
	if s.json {
		name += "/" + outputJSON
	}
	return name
}

// parseSubscription is the inverse of name.
func parseSubscription(schema *yang.Schema, name string) (s subscription, err error) {
	rest := strings.TrimPrefix(strings.TrimRight(name, "/"), prefix)
	rest, s.json = strings.CutSuffix(rest, "/"+outputJSON)
	rest, asked := cutField(rest, scopeField)
	rest, store := cutField(rest, datastoreField)
	if s.scope, s.store = scope(asked), store; !s.isAsked() {
		return s, wire.NewProblem(404, "protocol", "unknown-element",
			"there is no such stream: its name ends in /datastore=CONFIGURATION/scope=SUBTREE, or the like; "+rpc+" writes it")
	}
	if s.at, err = wire.Draft02.Parse(schema, rest); err == nil && s.at.IsRoot() {
		err = wire.Invalid("the stream's name has no path")
	}
	return s, err
}

// cutField removes "/field=value" from the end of a name.
func cutField(name, field string) (rest, value string) {
	at := strings.LastIndex(name, "/"+field+"=")
	if at < 0 {
		return name, ""
	}
	value, _ = url.PathUnescape(name[at+len(field)+2:])
	return name[:at], value
}

// isAsked reports whether the datastore and the scope have valid values.
func (s subscription) isAsked() bool {
	_, known := reach[s.scope]
	return known && (s.store == configuration || s.store == operational)
}

// open follows the changes of the subscription's top container. Changes of the configuration are
// kept, so that they can be replayed; changes of state are not.
func (s subscription) open(all stream.Source) (stream.Subscription, error) {
	top, stored := wire.TopName(s.at.Top()), false
	if replayed, ok := all.(stream.Replayer); ok {
		_, stored = replayed.Since(top)
	}
	if all != nil && stored == (s.store == configuration) {
		if sub, found := all.Open(top, ""); found {
			return sub, nil
		}
	}
	return nil, wire.NewProblem(404, "protocol", "invalid-value", "the datastore "+s.store+" has no changes of "+top+
		": CONFIGURATION has the changes of entries that clients write, and OPERATIONAL the changes of coe-status:status")
}
