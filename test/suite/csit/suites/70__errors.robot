*** Settings ***
Documentation       Invalid requests are refused with the right status, and an error with the reason.
Resource            ../resources/entries.resource

Suite Setup         Write A Pod
Suite Teardown      Remove All Entries
Test Setup          Write The Pod Again
Test Teardown       The Pod Should Be As It Was
Test Template       Request Should Be Refused

Test Tags           errors


*** Variables ***
${OLD}              ${DRAFT02.data}/${POD.container}
${NEW}              ${RFC8040.data}/${POD.container}
${OLD_ENTRY}        ${OLD}/pods/${POD_UID}
${NEW_ENTRY}        ${NEW}/pods=${POD_UID}
${UID}              "uid": "${POD_UID}"


*** Test Cases ***    DIALECT    STATUS    TAG    METHOD    PATH    BODY
Truncated JSON
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    {"pods":[{

Truncated JSON In RFC 8040
    ${RFC8040}    400    malformed-message    PUT    ${NEW_ENTRY}    {"pod:pods":[{

Truncated XML
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    <pods    type=application/xml    accept=application/json

No Body
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    ${EMPTY}

Another Top Name
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    {"podz": [{${UID}}]}

A Key That Differs From The Path
    [Tags]    odl
    ${DRAFT02}    400    invalid-value    PUT    ${OLD_ENTRY}    {"pods": [{"uid": "${SECOND_POD_UID}"}]}

A Key That Differs From The Path In RFC 8040
    ${RFC8040}    400    invalid-value    PUT    ${NEW_ENTRY}    {"pod:pods": [{"uid": "${SECOND_POD_UID}"}]}

An Unknown Leaf
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    {"pods": [{${UID}, "colour": "red"}]}

An Unknown Leaf In RFC 8040
    ${RFC8040}    400    unknown-element    PUT    ${NEW_ENTRY}    {"pod:pods": [{${UID}, "colour": "red"}]}

An Invalid Address
    [Tags]    odl
    ${DRAFT02}    400    malformed-message    PUT    ${OLD_ENTRY}    {"pods": [{${UID}, "host-ip-address": "300.1.2.3"}]}

An Invalid Address In RFC 8040
    ${RFC8040}    400    invalid-value    PUT    ${NEW_ENTRY}    {"pod:pods": [{${UID}, "host-ip-address": "300.1.2.3"}]}

A Number In Quotes In RFC 8040
    ${RFC8040}    400    invalid-value    PUT    ${NEW_ENTRY}
    ...    {"pod:pods": [{${UID}, "interface": [{${UID}, "segmentation-id": "5"}]}]}

An Unknown Module
    [Tags]    odl
    ${DRAFT02}    400    unknown-element    GET    ${DRAFT02.data}/nosuch:thing

An Unknown Module In RFC 8040
    ${RFC8040}    400    unknown-element    GET    ${RFC8040.data}/nosuch:thing

An Unknown Query Parameter In RFC 8040
    ${RFC8040}    400    invalid-value    GET    ${NEW_ENTRY}?colour\=red

A Depth That Is Not A Number In RFC 8040
    ${RFC8040}    400    invalid-value    GET    ${NEW_ENTRY}?depth\=deep

Patch In Draft-02
    ${DRAFT02}    415    operation-not-supported    PATCH    ${OLD_ENTRY}    {"pods": [{${UID}}]}

The Model Cannot Be Written
    ${DRAFT02}    405    operation-not-supported    PUT    ${DRAFT02.data}/elan:elan-instances    {"elan-instances": {}}

The State Cannot Be Written
    ${DRAFT02}    405    operation-not-supported    PUT    ${DRAFT02_ROOT}/operational/${POD.container}    {"coe": {}}

An Unsupported Accept
    ${DRAFT02}    406    invalid-value    GET    ${OLD_ENTRY}    accept=text/html

An Unsupported Content Type
    ${DRAFT02}    415    invalid-value    PUT    ${OLD_ENTRY}    x    type=text/plain

Errors Are In XML If The Client Accepts XML
    [Template]    NONE
    ${answer}=    Request    GET    ${OLD}/pods/${SECOND_POD_UID}    accept=application/xml    expected=404
    Tag In XML Should Be    ${answer}    data-missing
    ${answer}=    Request    GET    ${NEW}/pods\=${SECOND_POD_UID}    accept=${RFC8040.xml}    expected=404
    Tag In XML Should Be    ${answer}    invalid-value


*** Keywords ***
Write A Pod
    Begin Without Entries
    ${body}=    Body    pod.json
    Request    PUT    ${OLD_ENTRY}    ${body}    expected=201

Write The Pod Again
    [Documentation]    Restores the pod, in case the controller has accepted an invalid request.
    ${body}=    Body    pod.json
    ${answer}=    Request    PUT    ${OLD_ENTRY}    ${body}
    Should Be True    ${answer.status_code} in (200, 201)

Request Should Be Refused
    [Arguments]    ${dialect}    ${status}    ${tag}    ${method}    ${path}    ${body}=${NONE}    &{media}
    IF    $body is not None and 'type' not in $media    VAR    &{media}    type=${dialect.json}
    ${answer}=    Request    ${method}    ${path}    ${body}    expected=${status}    &{media}
    Error Should Be    ${answer}    ${tag}    ${dialect}

Tag In XML Should Be
    [Arguments]    ${answer}    ${tag}
    ${element}=    Parse XML    ${answer.text}
    Should Be Equal    ${element.tag}    errors
    Element Text Should Be    ${element}    ${tag}    error/error-tag

The Pod Should Be As It Was
    ${body}=    Body    pod.json
    Entry Should Be    ${DRAFT02}    ${POD}    ${body}
