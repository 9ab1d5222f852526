"""The language of short answers: told right or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.text.language_guess import LANGUAGES, guess_language

SENTENCES = {
    "en": [
        "You can return anything within 47 days if you bring the blue card.", "We are open from ten to six, every day but Monday.",
        "Where is my order?",
        "The water boils when it is hot enough.", "She asked whether they would come with us.", "I don't think that this is the right answer.",
        "Please send it to the address that you gave us.", "It was the best of times, it was the worst of times.",
        "How do I get a refund for my lamp?",
        "Photosynthesis turns light into sugar, which the plant can then use.", "lol no i dont know what you are on about",
        "Two plus three is five.",
    ],
    "zh": [
        "您可以在47天内退货，请带上蓝卡。", "我们周二到周日营业。", "你好吗？", "水在一百度时沸腾。", "請問你們的營業時間是什麼時候？",
        "这个问题的答案是五。",
        "植物通过光合作用把光变成糖。", "我不知道你在说什么。", "用E19灯泡，最多40瓦。", "加入灯笼会，全场92折，欢迎光临。", "她昨天没有来上课。",
        "哈哈哈好呀，那我八点到哦",
    ],
    "de": [
        "Sie können alles innerhalb von 47 Tagen zurückgeben.", "Wir haben von zehn bis sechs Uhr geöffnet.", "Wo ist meine Bestellung?",
        "Das weiß ich leider nicht.",
        "Die Pflanze wandelt mit der Sonne Licht in Zucker um.", "Ich glaube nicht, dass das richtig ist.",
        "Bitte schicken Sie uns eine Nachricht.",
        "Es war einmal ein König, der hatte eine Tochter.", "Wie bekomme ich mein Geld für die Lampe zurück?", "Der Zug ist heute nicht gefahren.",
        "Wasser kocht bei hundert Grad, wenn es rein ist.", "Kannst du mir sagen, was das ist?",
    ],
    "id": [
        "Anda bisa mengembalikan barang dalam 47 hari.", "Kami buka dari pukul sepuluh sampai enam.", "Di mana pesanan saya?",
        "Saya tidak tahu jawaban untuk itu.",
        "Tumbuhan mengubah cahaya menjadi gula dengan fotosintesis.", "Silakan kirim pesan kepada kami.",
        "Air mendidih pada suhu seratus derajat jika murni.",
        "Bagaimana cara saya mendapatkan uang kembali untuk lampu ini?", "Dia tidak datang ke sekolah karena sakit.",
        "Terima kasih sudah menghubungi kami.",
        "Apa yang kamu lakukan di sana?", "Buku itu ada di atas meja yang besar.",
    ],
    "es": [
        "Puede devolver todo en un plazo de 47 días.", "Estamos abiertos de diez a seis, todos los días menos el lunes.", "¿Dónde está mi pedido?",
        "No sé cuál es la respuesta a eso.", "La planta convierte la luz en azúcar con la fotosíntesis.", "Por favor, envíenos un mensaje.",
        "El agua hierve a cien grados cuando es pura.", "¿Cómo puedo obtener un reembolso por mi lámpara?",
        "Ella no vino a la escuela porque estaba enferma.",
        "Gracias por ponerse en contacto con nosotros.", "¿Qué haces tú en esta ciudad?", "El libro está sobre la mesa grande.",
    ],
    "fr": [
        "Vous pouvez tout retourner dans les 47 jours.", "Nous sommes ouverts de dix heures à dix-huit heures.", "Où est ma commande ?",
        "Je ne sais pas quelle est la réponse.",
        "La plante transforme la lumière en sucre par la photosynthèse.", "Merci de nous envoyer un message.",
        "L'eau bout à cent degrés quand elle est pure.",
        "Comment puis-je être remboursé pour ma lampe ?", "Elle n'est pas venue à l'école parce qu'elle était malade.",
        "Merci de nous avoir contactés.",
        "Qu'est-ce que tu fais dans cette ville ?", "Le livre est sur la grande table.",
    ],
    "ru": [
        "Вы можете вернуть товар в течение 47 дней.", "Мы открыты с десяти до шести.", "Где мой заказ?", "Я не знаю ответа на этот вопрос.",
        "Вода кипит при ста градусах.",
        "Спасибо, что написали нам.", "Привет! Как дела?", "Книга лежит на большом столе.",
    ],
    "ar": [
        "يمكنك إرجاع أي شيء خلال 47 يومًا.", "نحن نفتح من العاشرة إلى السادسة.", "أين طلبي؟", "لا أعرف الجواب على هذا السؤال.",
        "يغلي الماء عند مئة درجة.", "شكرًا لتواصلك معنا.",
        "مرحبا، كيف حالك؟", "الكتاب على الطاولة الكبيرة.",
    ],
    "ja": [
        "47日以内に返品できます。", "月曜日以外は10時から開いています。", "注文はどこですか？", "その答えは分かりません。", "水は百度で沸騰する。",
        "お問い合わせありがとうございます。",
        "元気？", "本は大きな机の上にある。",
    ],
    "ko": [
        "47일 안에 반품할 수 있습니다.", "우리는 열 시부터 여섯 시까지 엽니다.", "제 주문은 어디에 있나요?", "그 답을 모르겠습니다.",
        "물은 백 도에서 끓는다.", "연락 주셔서 감사합니다.",
        "안녕하세요?", "책은 큰 책상 위에 있다.",
    ],
}  # fmt: skip
CASES = [(language, sentence) for language, sentences in SENTENCES.items() for sentence in sentences]


@pytest.mark.parametrize(("language", "sentence"), CASES)
def test_a_sentence_is_never_taken_for_another_language(language: str, sentence: str) -> None:
    assert guess_language(sentence).language in (language, None)


@pytest.mark.parametrize("language", SENTENCES)
def test_nearly_all_sentences_are_told(language: str) -> None:
    told = sum(guess_language(sentence).language == language for sentence in SENTENCES[language])
    assert told >= 0.75 * len(SENTENCES[language])


@pytest.mark.parametrize("language", SENTENCES)
def test_a_paragraph_is_told(language: str) -> None:
    assert guess_language(" ".join(SENTENCES[language])).language == language


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Arizona and Hawaii", "LATIN"), ("Christina Aguilera", "LATIN"), ("Zażółć gęślą jaźń", "LATIN"), ("東京", "HAN"),
        ("Київ має їжу", "CYRILLIC"), ("این کتاب چیست؟", "ARABIC"),
        ("สวัสดีครับ", "THAI"), ("नमस्ते दुनिया", "DEVANAGARI"), ("Γειά σου Κόσμε", "GREEK"), ("1963", ""), ("😂😂", ""), ("", ""),
    ],
)  # fmt: skip
def test_names_single_words_and_unknown_languages_have_a_script_at_most(text: str, script: str) -> None:
    guess = guess_language(text)
    assert (guess.language, guess.script) == (None, script)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("请你运行：```python\nfor the in of: and is to have it\n```就可以了。", "zh"),
        ("请看 https://the.example/and/of/it 谢谢你", "zh"),
        ("在英文里，“the” 是定冠词，我们常常用它。", "zh"),
        ("The character 的 is the most frequent of all in Chinese.", "en"),
        ("Bring the card. " * 20, "en"),
    ],
    ids=["code", "link", "quoted English", "quoted Chinese", "long"],
)
def test_the_language_is_that_of_most_of_the_text_without_code_and_links(text: str, language: str) -> None:
    assert guess_language(text).language == language


@given(st.text())
def test_any_text_gets_a_guess(text: str) -> None:
    guess = guess_language(text)
    assert guess.language is None or guess.language in LANGUAGES
    assert (guess.units == 0) == (guess.script == "")
