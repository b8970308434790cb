package restconf

import (
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/yang"
)

// OpenDaylight's way to follow data: an operation names a stream, a GET of the stream
// tells where its events are, and there they are, each of one node of the data.
//
// A stream's name says all there is of it. So none is kept here, and each is there at
// every replica and after a restart.
const (
	dataChangesPrefix = "data-change-event-subscription/"
	subscribeRPC      = "create-data-change-event-subscription"
	salRemote         = "sal-remote"
	salRemoteSpace    = "urn:opendaylight:params:xml:ns:yang:controller:md:sal:remote"
	subscribePath     = draftRoot + "/operations/" + salRemote + ":" + subscribeRPC
)

// scope is how far below what is followed events are told.
type scope string

// The scopes, as OpenDaylight's documentation has them: the node itself, its children
// too, all below it.
const (
	scopeBase    scope = "BASE"
	scopeOne     scope = "ONE"
	scopeSubtree scope = "SUBTREE"
)

// Where the data are that are followed.
const (
	configuration = "CONFIGURATION"
	operational   = "OPERATIONAL"
)

// The names of what a subscription asks for, in requests and in streams' names.
const (
	datastoreField = "datastore"
	scopeField     = "scope"
	outputField    = "notification-output-type"
	outputJSON     = "JSON"
)

// subscription is what a stream's name says.
type subscription struct {
	at    target // a container, an entry of a list, or a leaf
	store string
	scope scope
	json  bool
}

// name is what follows the path of all streams, still percent-encoded.
func (s subscription) name() string {
	name := dataChangesPrefix + strings.TrimPrefix(draft02.url(s.at), "/") +
		"/" + datastoreField + "=" + s.store + "/" + scopeField + "=" + string(s.scope)
	if s.json {
		name += "/" + outputJSON
	}
	return name
}

// parseSubscription is the inverse of name; ok is false for a name of another kind.
func parseSubscription(schema *yang.Schema, name string) (s subscription, ok bool, err error) {
	rest, ok := strings.CutPrefix(strings.TrimRight(name, "/"), dataChangesPrefix)
	if !ok {
		return s, false, nil
	}
	rest, s.json = strings.CutSuffix(rest, "/"+outputJSON)
	rest, asked := cutField(rest, scopeField)
	rest, store := cutField(rest, datastoreField)
	if s.scope, s.store = scope(asked), store; !s.isAsked() {
		return s, true, newProblem(404, "protocol", "unknown-element",
			"there is no such stream: its name ends in /datastore=CONFIGURATION/scope=SUBTREE, or the like; "+subscribeRPC+" writes it")
	}
	if s.at, err = draft02.parse(schema, rest); err == nil && s.at.isRoot() {
		err = badPath(nil, "the stream's name has no path")
	}
	return s, true, err
}

// cutField takes "/field=value" off the end of a name.
func cutField(name, field string) (rest, value string) {
	at := strings.LastIndex(name, "/"+field+"=")
	if at < 0 {
		return name, ""
	}
	value, _ = url.PathUnescape(name[at+len(field)+2:])
	return name[:at], value
}

// isAsked tells whether the datastore and the scope are such.
func (s subscription) isAsked() bool {
	return (s.store == configuration || s.store == operational) &&
		(s.scope == scopeBase || s.scope == scopeOne || s.scope == scopeSubtree)
}

// open follows the changes of the top container that the subscription is in.
func (s subscription) open(c *changes) (stream.Subscription, error) {
	top := topName(s.at.top())
	followed := c != nil && c.hasLog(top)
	if s.store == operational {
		followed = c != nil && c.watch[top] != nil
	}
	if followed {
		if sub, found := c.Open(top, ""); found {
			return sub, nil
		}
	}
	return nil, newProblem(404, "protocol", "invalid-value", "no changes of "+top+" are told in the datastore "+s.store+
		": CONFIGURATION has those of what clients write, OPERATIONAL those of coe-status:status")
}
