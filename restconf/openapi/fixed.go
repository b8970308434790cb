package openapi

// This file has the resources that do not depend on the modules.

// addDiscovery adds the resources by which clients discover the others.
func (b *builder) addDiscovery() {
	tags := b.tag("discovery", "Descriptions of this server: its API, modules, streams and operations.")
	asDocument := []string{"application/yang-data+json", "application/json", "application/yang-data+xml", "application/xml"}
	inDraft := []string{"application/yang.api+json", "application/json", "application/yang.api+xml", "application/xml"}
	inJSON := []string{"application/json"}
	for _, one := range []struct {
		path, id, summary string
		media             []string
	}{
		{"/.well-known/host-meta", "host-meta", "The path of the API (RFC 8040 section 3.1)", []string{"application/xrd+xml", "application/json"}},
		{"/.well-known/host-meta.json", "host-meta.json", "The path of the API, in JSON", inJSON},
		{"/rests", "root", "The root resource (RFC 8040 section 3.3)", asDocument},
		{"/rests/operations", "operations.rfc8040", "The operations", asDocument},
		{"/rests/yang-library-version", "yang-library-version", "The revision of the library of modules", asDocument},
		{"/restconf/modules", "modules", "The modules, as draft-02 lists them", inDraft},
		{"/restconf/streams", "streams", "The streams, as draft-02 lists them", inDraft},
		{"/restconf/operations", "operations.draft02", "The operations, as draft-02 lists them", inDraft},
		{"/openapi.json", "openapi", "This document", inJSON},
	} {
		content := object{}
		for _, name := range one.media {
			content[name] = anything
		}
		b.paths[one.path] = object{"get": object{
			"operationId": "get." + one.id, "summary": one.summary, "tags": tags,
			"responses": object{
				"200":     object{"description": "The resource.", "content": content},
				"401":     ref("responses", "errors.rfc8040.401"),
				"default": ref("responses", "errors.rfc8040.default"),
			},
		}}
	}
	b.paths["/rests/modules/{module}@{revision}.yang"] = object{
		"parameters": []object{pathText("module", "The module's name."), pathText("revision", "The module's revision, such as 2017-06-11.")},
		"get": object{
			"operationId": "get.module", "summary": "A module's source", "tags": tags,
			"responses": object{
				"200":     object{"description": "The source in YANG.", "content": object{"application/yang": object{"schema": object{"type": "string"}}}},
				"404":     ref("responses", "errors.rfc8040.404"),
				"default": ref("responses", "errors.rfc8040.default"),
			},
		},
	}
}

func pathText(name, description string) object {
	return object{"name": name, "in": "path", "required": true, "description": description, "schema": object{"type": "string", "minLength": 1}}
}

// addStreams adds the streams, and the operation that returns the name of one.
func (b *builder) addStreams() {
	tags := b.tag("streams", "Changes of data, as server-sent events and over websockets.")
	name := pathText("stream", "The stream's name, as ietf-restconf-monitoring:restconf-state lists it.")
	for path, in := range map[string]string{"/rests/streams/{stream}": "JSON", "/rests/streams/xml/{stream}": "XML"} {
		b.paths[path] = object{"parameters": []object{name}, "get": object{
			"operationId": "follow." + in, "summary": "Follow a stream with notifications in " + in, "tags": tags,
			"parameters": references("parameters", []string{"start-time", "stop-time", "filter", "Last-Event-ID"}),
			"responses":  events("errors.rfc8040"),
		}}
	}
	b.paths["/restconf/streams/stream/{stream}/events"] = object{"parameters": []object{name}, "get": object{
		"operationId": "follow.draft02", "summary": "Follow a stream", "tags": tags,
		"parameters": references("parameters", []string{"start-time", "stop-time", "filter", "Last-Event-ID"}),
		"responses":  events("errors.draft02"),
	}}
	b.addSubscription(tags)
}

func events(errors string) object {
	return object{
		"200":     object{"description": "The events of the stream.", "content": object{"text/event-stream": object{"schema": object{"type": "string"}}}},
		"400":     ref("responses", errors+".400"),
		"401":     ref("responses", errors+".401"),
		"404":     ref("responses", errors+".404"),
		"406":     ref("responses", errors+".406"),
		"default": ref("responses", errors+".default"),
	}
}

// addSubscription adds the operation and the streams of OpenDaylight's subscriptions.
func (b *builder) addSubscription(tags []string) {
	text := object{"type": "string"}
	enum := func(values ...string) object { return object{"type": "string", "enum": values} }
	input := object{
		"type": "object", "required": []string{"path"}, "additionalProperties": false,
		"properties": object{
			"path":                         object{"type": "string", "description": "The instance-identifier of the data to follow: \"/pod:coe\"."},
			"sal-remote-augment:datastore": enum("CONFIGURATION", "OPERATIONAL"),
			"sal-remote-augment:scope":     enum("BASE", "ONE", "SUBTREE"),
			"sal-remote-augment:notification-output-type": enum("XML", "JSON"),
		},
	}
	output := object{"type": "object", "required": []string{"stream-name"}, "properties": object{"stream-name": text}}
	b.paths["/restconf/operations/sal-remote:create-data-change-event-subscription"] = object{"post": object{
		"operationId": "subscribe", "summary": "Get the name of the stream of changes of some data", "tags": tags,
		"requestBody": object{"required": true, "content": object{
			"application/json": object{"schema": only("input", input)}, "application/xml": anything,
		}},
		"responses": object{
			"200": object{"description": "The stream's name.", "content": object{
				"application/json": object{"schema": only("output", output)}, "application/xml": anything,
			}},
			"400":     ref("responses", "errors.draft02.400"),
			"401":     ref("responses", "errors.draft02.401"),
			"415":     ref("responses", "errors.draft02.415"),
			"default": ref("responses", "errors.draft02.default"),
		},
	}}
	b.paths["/restconf/streams/stream/{stream}"] = object{
		"parameters": []object{pathText("stream", "The stream's name. Its slashes need no encoding.")},
		"get": object{
			"operationId": "subscription", "summary": "Get the URL or the events of a stream", "tags": tags,
			"description": "For a stream that the operation has named, the response has the URL of the websocket in Location and in the body; " +
				"with Accept: text/event-stream it has the events themselves. For any other stream it has the stream's entry in the list of streams.",
			"responses": object{
				"200": object{"description": "The URL of the events, or the events.", "headers": object{"Location": ref("headers", "Location")},
					"content": object{"application/json": anything, "application/xml": anything, "text/event-stream": object{"schema": text}}},
				"404":     ref("responses", "errors.draft02.404"),
				"default": ref("responses", "errors.draft02.default"),
			},
		},
	}
}
