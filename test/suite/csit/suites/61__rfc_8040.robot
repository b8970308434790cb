*** Settings ***
Documentation       Further parts of RFC 8040 that clients use.
Resource            ../resources/entries.resource

Suite Setup         Begin Without Entries
Test Setup          Write A Pod
Test Teardown       Remove All Entries

Test Tags           rfc-8040


*** Variables ***
${PODS}             ${RFC8040.data}/${POD.container}
${ENTRY}            ${PODS}/pods=${POD_UID}
${SECOND_ENTRY}     ${PODS}/pods=${SECOND_POD_UID}
${YANG_PATCH}       application/yang-patch+json


*** Test Cases ***
The Root Is Found
    [Documentation]    RFC 8040 section 3.1.
    ${answer}=    Request    GET    /.well-known/host-meta    accept=application/xrd+xml    expected=200
    ${element}=    Parse XML    ${answer.text}
    Element Attribute Should Be    ${element}    href    ${RFC8040_ROOT}    Link
    ${answer}=    Request    GET    ${RFC8040_ROOT}    accept=${RFC8040.json}    expected=200
    Dictionary Should Contain Key    ${answer.json()}[ietf-restconf:restconf]    data

The Library Lists The Modules
    ${answer}=    Request    GET    ${RFC8040.data}/ietf-yang-library:yang-library    expected=200
    Should Contain    ${answer.text}    urn:opendaylight:coe:northbound:pod

OPTIONS Lists The Methods
    ${answer}=    Request    OPTIONS    ${ENTRY}    expected=200
    Should Match Regexp    ${answer.headers}[Allow]    \\bPATCH\\b
    Should Contain    ${answer.headers}[Accept-Patch]    application/yang-patch+json

Fields And Depth Select Data
    ${answer}=    Request    GET    ${PODS}?fields\=pods(uid;name)    expected=200
    VAR    &{want}    uid=${POD_UID}    name=${POD_NAME}
    Dictionaries Should Be Equal    ${answer.json()}[pod:coe][pods][0]    ${want}
    ${answer}=    Request    GET    ${PODS}?depth\=1    expected=200
    Should Not Contain    ${answer.text}    ${POD_NAME}

A Plain Patch Merges
    VAR    ${body}    {"pod:pods": [{"uid": "${POD_UID}", "name": "other"}]}
    Request    PATCH    ${ENTRY}    ${body}    type=${RFC8040.json}    expected=204
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    VAR    ${pod}    ${answer.json()}[pod:pods][0]
    Should Be Equal    ${pod}[name]    other
    Should Be Equal    ${pod}[host-ip-address]    ${NODE_ADDRESS}

A YANG Patch Makes All Its Edits
    ${answer}=    Patch    {"edit-id": "rename", "operation": "merge", "target": "/pods\=${POD_UID}", "value": {"pod:pods": [{"uid": "${POD_UID}", "name": "other"}]}}
    ...    {"edit-id": "add", "operation": "create", "target": "/pods\=${SECOND_POD_UID}", "value": {"pod:pods": [{"uid": "${SECOND_POD_UID}"}]}}
    Status Should Be    200    ${answer}
    Dictionary Should Contain Key    ${answer.json()}[ietf-yang-patch:yang-patch-status]    ok
    Request    GET    ${SECOND_ENTRY}    expected=200

A YANG Patch Makes No Edit If One Fails
    ${answer}=    Patch    {"edit-id": "add", "operation": "create", "target": "/pods\=${SECOND_POD_UID}", "value": {"pod:pods": [{"uid": "${SECOND_POD_UID}"}]}}
    ...    {"edit-id": "twice", "operation": "create", "target": "/pods\=${POD_UID}", "value": {"pod:pods": [{"uid": "${POD_UID}"}]}}
    Status Should Be    409    ${answer}
    VAR    ${edit}    ${answer.json()}[ietf-yang-patch:yang-patch-status][edit-status][edit][0]
    Should Be Equal    ${edit}[edit-id]    twice
    Request    GET    ${SECOND_ENTRY}    expected=404

If-Match Prevents Overwriting A Change
    [Documentation]    RFC 8040 section 3.4.1: a client sends If-Match with the ETag of its last read.
    ${read}=    Request    GET    ${ENTRY}    expected=200
    VAR    ${tag}    ${read.headers}[ETag]
    ${body}=    Body    pod.json
    ${other}=    Evaluate    $body.replace($NODE_ADDRESS, $OTHER_NODE)
    Request    PUT    ${ENTRY}    ${other}    type=${RFC8040.json}    If-Match=${tag}    expected=204
    Request    PUT    ${ENTRY}    ${body}    type=${RFC8040.json}    If-Match=${tag}    expected=412
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Be Equal    ${answer.json()}[pod:pods][0][host-ip-address]    ${OTHER_NODE}

If-None-Match Prevents Sending The Same Data
    ${read}=    Request    GET    ${ENTRY}    expected=200
    ${answer}=    Request    GET    ${ENTRY}    If-None-Match=${read.headers}[ETag]    expected=304
    Should Be Empty    ${answer.content}

The Model Can Be Read And Not Written
    Wait Until Keyword Succeeds    ${PATIENCE}    50ms    Request    GET
    ...    ${RFC8040.data}/elan:elan-instances/elan-instance\=${NODE_ADDRESS}%3A${NAMESPACE}    expected=200
    ${answer}=    Request    DELETE    ${RFC8040.data}/elan:elan-instances    expected=405
    Error Should Be    ${answer}    operation-not-supported    ${RFC8040}


*** Keywords ***
Write A Pod
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    type=${RFC8040.json}    expected=201

Patch
    [Documentation]    Sends the edits as one YANG Patch of all pods.
    [Arguments]    @{edits}
    ${all}=    Catenate    SEPARATOR=,    @{edits}
    ${answer}=    Request    PATCH    ${PODS}
    ...    {"ietf-yang-patch:yang-patch": {"patch-id": "csit", "edit": [${all}]}}    type=${YANG_PATCH}
    RETURN    ${answer}
